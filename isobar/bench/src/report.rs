//! The report of a proof of isolation: JSON, a page, a few lines of text.

mod costs;
mod html;
mod model;
pub(crate) mod svg;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

pub use model::*;

/// Make the page of a proof of isolation again, from its JSON.
#[derive(clap::Args, Clone, Debug)]
pub struct PageArgs {
    /// What `isobar bench isolation --json` wrote
    json: PathBuf,
    /// Where to write the page
    #[arg(long, default_value = "isolation.html", value_name = "FILE")]
    html: PathBuf,
}

/// Runs it.
pub fn page(args: &PageArgs) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&args.json)
        .with_context(|| format!("cannot read {}", args.json.display()))?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} is no report of `bench isolation`", args.json.display()))?;
    crate::output::write(&args.html, &html::page(&report))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
pub use costs::costs;
pub(crate) use html::STYLE;
pub use html::page as html;
pub use text::text;
