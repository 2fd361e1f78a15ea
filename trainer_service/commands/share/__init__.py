"""Runs on the Hugging Face Hub: the files that are shared, their card, uploads and downloads."""
