"""The processes of TensorFlow's data service: started, found, watched and ended as infeed's own."""
