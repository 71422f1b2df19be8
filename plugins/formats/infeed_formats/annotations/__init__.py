"""Annotations of images: boxes from COCO JSON and YOLO text files, masks in a folder."""
