"""PyTorch adapters: tensors, and a dataset for loaders and trainers."""
