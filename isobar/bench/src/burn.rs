//! `isobar bench burn`: uses processors, memory and a disk as much as its options say, and no database.
//!
//! It is what the control arm of the proof of isolation runs in a batch job's place.

use std::hint::black_box;
use std::io::{Seek as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::batch::{Event, emit, stop_at_eof};
use crate::cpus::Cpus;
use crate::processes::Used;

/// A part of a second in which work and rest alternate.
const SLICE: Duration = Duration::from_millis(10);
/// More than a processor's caches hold.
const BUFFER: usize = 64 << 20;
/// Bytes of one write.
const CHUNK: usize = 256 << 10;
/// The file starts again from its beginning after so many bytes.
const MOST_FILE: u64 = 256 << 20;

/// How much to use.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Seconds of processor time per second
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    pub cpu: f64,
    /// Bytes read and written in memory per second
    #[arg(long, default_value_t = 0.0, value_name = "BYTES")]
    pub memory: f64,
    /// Bytes written to a file per second
    #[arg(long, default_value_t = 0.0, value_name = "BYTES")]
    pub write: f64,
    /// Syncs of that file per second
    #[arg(long, default_value_t = 0.0, value_name = "N")]
    pub fsyncs: f64,
}

/// Use processors, memory and a disk, and no database.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    size: Size,
    /// Where the file is [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seconds to go on
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    time: f64,
    /// Run on these processors only
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    if let Some(cpus) = &args.cpus {
        cpus.pin(std::process::id())?;
    }
    let Size { cpu, memory, write, fsyncs } = args.size;
    if [cpu, memory, write, fsyncs].iter().any(|part| !part.is_finite() || *part < 0.0) {
        bail!("what to burn must be numbers from 0 on");
    }
    let stop = crate::interrupt::token()?;
    if args.until_eof {
        stop_at_eof(stop.clone());
    }
    let threads = (cpu.ceil() as usize).clamp(1, 256);
    // Thousandths of each thread's time; corrected by what the process is seen to use.
    let duty = Arc::new(AtomicU64::new((cpu / threads as f64 * 1000.0) as u64));
    for _ in 0..threads {
        let (duty, stop, share) = (duty.clone(), stop.clone(), memory / threads as f64);
        std::thread::spawn(move || compute(&duty, share, &stop));
    }
    let dir = args.dir.unwrap_or_else(std::env::temp_dir);
    if write > 0.0 || fsyncs > 0.0 {
        let mut file = tempfile::tempfile_in(&dir)
            .with_context(|| format!("cannot make a file in {}", dir.display()))?;
        let stop = stop.clone();
        std::thread::spawn(move || {
            if let Err(error) = fill(&mut file, write, fsyncs, &stop) {
                emit(&Event::Error { text: format!("the control's file: {error}") });
            }
        });
    }
    emit(&Event::Ready);
    let end = Instant::now() + crate::online::seconds("--time", args.time)?;
    let target = cpu / threads as f64 * 1000.0;
    regulate(&duty, cpu, target, end, &stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// Other processes on the same processors take turns: what is used is watched, and made up for.
async fn regulate(
    duty: &AtomicU64,
    cpu: f64,
    target: f64,
    end: Instant,
    stop: &CancellationToken,
) -> Result<()> {
    let mut before = (Instant::now(), Used::of(std::process::id())?);
    let mut wanted = target;
    while Instant::now() < end {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            () = stop.cancelled() => break,
        }
        let now = (Instant::now(), Used::of(std::process::id())?);
        let used = now.1.since(before.1).per((now.0 - before.0).as_secs_f64()).cpu_seconds;
        before = now;
        wanted = (wanted + 0.5 * (cpu - used) / cpu.max(0.01) * target).clamp(0.0, 1000.0);
        duty.store(wanted as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn compute(duty: &AtomicU64, memory: f64, stop: &CancellationToken) {
    let mut buffer = if memory > 0.0 { vec![1_u64; BUFFER / 8] } else { Vec::new() };
    let (mut at, mut mixed) = (0_usize, 1_u64);
    let mut owed = 0.0;
    while !stop.is_cancelled() {
        let started = Instant::now();
        let work = SLICE.mul_f64(duty.load(Ordering::Relaxed) as f64 / 1000.0);
        // Each word is read and written: sixteen bytes of traffic.
        owed += memory * SLICE.as_secs_f64() / 16.0;
        while owed >= 512.0 && !buffer.is_empty() && started.elapsed() < work {
            at = if at + 512 > buffer.len() { 0 } else { at };
            for word in buffer.iter_mut().skip(at).take(512) {
                mixed = mixed.wrapping_add(*word);
                *word = mixed;
            }
            (at, owed) = (at + 512, owed - 512.0);
        }
        while started.elapsed() < work {
            for _ in 0..200 {
                mixed = black_box(mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(23));
            }
        }
        owed = owed.min(memory / 16.0);
        std::thread::sleep(SLICE.saturating_sub(started.elapsed()));
    }
    black_box((mixed, buffer.first()));
}

fn fill(
    file: &mut std::fs::File,
    write: f64,
    fsyncs: f64,
    stop: &CancellationToken,
) -> std::io::Result<()> {
    let chunk = vec![7_u8; CHUNK];
    let started = Instant::now();
    let (mut written, mut synced, mut position) = (0.0, 0.0, 0);
    while !stop.is_cancelled() {
        let elapsed = started.elapsed().as_secs_f64();
        while written + CHUNK as f64 <= write * elapsed {
            if position + CHUNK as u64 > MOST_FILE {
                file.rewind()?;
                position = 0;
            }
            file.write_all(&chunk)?;
            (written, position) = (written + CHUNK as f64, position + CHUNK as u64);
        }
        if synced + 1.0 <= fsyncs * elapsed {
            file.sync_data()?;
            synced += 1.0;
        }
        std::thread::sleep(SLICE);
    }
    Ok(())
}
