//! What holds of the decisions as a whole: the fuzz asks what no world may lead to, the model explores what they lead to
//! together.

mod fuzz;
mod model;

/// How much the environment asks for. It decides how long is looked, never what is found.
#[allow(clippy::disallowed_methods, reason = "a bound of a test, no input of a decision")]
fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
