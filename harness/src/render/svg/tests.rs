//! Every figure.
