"""Annotations of images: boxes from COCO JSON and YOLO text files, and masks in a folder."""
