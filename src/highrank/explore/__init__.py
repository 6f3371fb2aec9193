"""A local web page that shows what a mixture does with any text (`highrank explore`)."""
