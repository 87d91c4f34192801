//! Lines for whoever reads them, if anybody does: a reader that went away or a log on a full disk ends no control plane,
//! where `println!` and `eprintln!` would.

use std::fmt::Display;
use std::io::Write;

/// A line on standard output.
pub fn out(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A line on standard error.
pub fn err(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
