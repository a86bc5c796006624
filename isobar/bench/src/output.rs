//! What a person reads while load runs and after it, and files that appear whole or not at all.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::driver::Run;
use crate::latency::Phase;

/// A line each second, on a terminal.
pub fn progress(label: &str) -> impl FnMut(&Run) + use<> {
    let label = label.to_owned();
    let terminal = std::io::stderr().is_terminal();
    let mut shown = None;
    move |run| {
        let Some(second) = run.last_second() else { return };
        if !terminal || shown == Some(second.at) {
            return;
        }
        shown = Some(second.at);
        note(&format!(
            "{label} {:>4} s  {:>6} tps  p50 {:>7.1} ms  p95 {:>7.1} ms  errors {}",
            second.at + 1,
            second.transactions,
            second.p50,
            second.p95,
            second.errors
        ));
    }
}

/// A line on standard error; one that cannot be written is lost.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A phase in a few lines.
pub fn summary(phase: &Phase) -> String {
    let mut text = String::new();
    let latency = &phase.latency_ms;
    let _ = writeln!(
        text,
        "{} loop, {} connections, {:.0} s: {} transactions, {:.1} tps",
        phase.pacing, phase.connections, phase.seconds, phase.transactions, phase.tps
    );
    let _ = writeln!(
        text,
        "latency (ms, from {}): p50 {:.2}  p95 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}",
        phase.latency_from, latency.p50, latency.p95, latency.p99, latency.p999, latency.max
    );
    for (kind, result) in &phase.kinds {
        let latency = &result.latency_ms;
        let _ = writeln!(
            text,
            "  {kind:<14} {:>8}  p50 {:.2}  p95 {:.2}  p99 {:.2}",
            result.transactions, latency.p50, latency.p95, latency.p99
        );
    }
    let list = |counts: &std::collections::BTreeMap<String, u64>| match counts.is_empty() {
        true => "none".to_owned(),
        false => {
            counts.iter().map(|(code, n)| format!("{code}: {n}")).collect::<Vec<_>>().join(", ")
        }
    };
    let _ = writeln!(text, "errors {}; retries {}", list(&phase.errors), list(&phase.retries));
    if let Some(overrun) = &phase.overrun {
        let _ = writeln!(text, "given up: {overrun}");
    }
    text
}

/// Writes a file beside its place and moves it there.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    // As any file that a program writes: whoever the umask lets may read it.
    let mode = std::fs::Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().permissions(mode).tempfile_in(folder).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

/// Writes a value as JSON.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot make JSON")?;
    write(path, &(text + "\n"))
}
