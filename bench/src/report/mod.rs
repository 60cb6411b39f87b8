//! Results for people: tables for a terminal, a page for a browser, and what every
//! result must carry to be believed.

pub mod compare;
mod delays;
mod gain;
pub mod html;
mod metric;
pub mod pictures;
mod plot;
mod provenance;
mod section;
mod table;

pub use provenance::{COMMAND, Provenance, command_line, virtual_time};
pub use table::Table;
