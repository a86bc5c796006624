//! What readers of files share: how a CSV file is written, and who takes the rows. It must open no file.

use crate::compare::Values;
use crate::error::Result;

/// How a CSV file is written.
#[derive(Clone, Debug)]
pub struct CsvForm {
    /// Between values.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
}

/// Takes a row's values and a way to say where it stands.
pub type TakeRow<'a> = dyn FnMut(Values, &dyn Fn() -> String) -> Result<()> + 'a;
