//! What a report says of the machine, the server and the settings, and of what one machine cannot show.

use std::collections::BTreeMap;

use anyhow::Result;

use super::Args;
use super::cluster::Cluster;
use crate::report::Pinning;
use crate::target::Target;
use crate::workload::Workload;

/// The machine and the server, by name.
pub async fn describe(target: &Target) -> Result<BTreeMap<String, String>> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let processors = std::thread::available_parallelism().map_or(0, |count| count.get());
    let model = field(&read("/proc/cpuinfo"), "model name");
    let online = read("/sys/devices/system/cpu/online");
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let gib = memory.trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / f64::from(1 << 20);
    Ok(BTreeMap::from([
        ("server".to_owned(), format!("{} at {}", target.version().await?, target.shown)),
        (
            "processors".to_owned(),
            format!("{model}, online {} ({processors} for this driver)", online.trim()),
        ),
        ("memory".to_owned(), format!("{gib:.1} GiB")),
        ("kernel".to_owned(), read("/proc/sys/kernel/osrelease").trim().to_owned()),
        (
            "build".to_owned(),
            if cfg!(debug_assertions) { "with debug assertions" } else { "release" }.to_owned(),
        ),
    ]))
}

/// Settings, by name.
pub fn settings(args: &Args, workload: &Workload) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::from([
        ("workload".to_owned(), format!("{}, {}", args.workload.workload, workload.size())),
        ("connections".to_owned(), args.threads.to_string()),
        ("columnar replicas".to_owned(), args.replicas.to_string()),
        (
            "each arm of each round".to_owned(),
            format!(
                "{} s of an open loop and {} s of a closed one in {} turns, each part behind {} s of warm-up",
                args.time, args.throughput_time, args.turns, args.warmup
            ),
        ),
        ("arrivals".to_owned(), "Poisson; latency from the intended start".to_owned()),
        ("seed".to_owned(), args.workload.seed.to_string()),
        (
            "intervals".to_owned(),
            "95 %, Student's t over rounds; arms are compared within rounds, by the logarithm of their ratio".to_owned(),
        ),
    ]);
    if args.rate.is_none() {
        let text =
            format!("{:.0} % of the closed loop's throughput without learners", args.load * 100.0);
        settings.insert("rate".to_owned(), text);
    }
    if matches!(workload, Workload::Oltp(_)) {
        settings.insert("skew".to_owned(), args.workload.skew.to_string());
    }
    settings
}

/// What this run cannot show.
pub fn cannot_show(cluster: &Cluster, pinning: &Pinning) -> Vec<String> {
    let mut lines = Vec::new();
    if cluster.is_ours() {
        lines.extend([
            "All nodes share one machine: memory bandwidth, the last-level cache, one disk with its write cache, and one network stack. The control arm prices what a batch's use of them costs; machines of their own would not pay it.".to_owned(),
            "The control writes and computes as much as the batch did, but not in its pattern; its memory traffic is derived from rows read (three passes over their bytes), not measured.".to_owned(),
            "Syncs of a process are not counted by the kernel: the control syncs once a second if the batch wrote anything.".to_owned(),
            "The network is loopback: no switch, no lost packets, no distance between replicas.".to_owned(),
        ]);
    } else {
        lines.push("The nodes' processors and disks are not visible from here: processor time per node is missing, and the control is sized from the batch's client alone.".to_owned());
    }
    if pinning.online.is_none() {
        lines.push("Nothing was pinned: the scheduler may run a batch on the online path's processors, which a row of machines would not do.".to_owned());
    }
    lines
}

/// What the number of transactions forbids to read out of the highest percentiles.
pub fn few_transactions(samples: &[crate::report::Sample]) -> Option<String> {
    let seen = |sample: &crate::report::Sample| -> u64 {
        let all: u64 = sample.open.kinds.values().map(|kind| kind.transactions).sum();
        all.saturating_sub(sample.open.steady.as_ref().map_or(0, |steady| steady.left_out))
    };
    let least = samples.iter().map(seen).min()?;
    let which = match least {
        0..200 => "p95, p99 and p99.9 rest",
        200..1_000 => "p99 and p99.9 rest",
        1_000..10_000 => "p99.9 rests",
        _ => return None,
    };
    Some(format!(
        "An arm of a round had as few as {least} transactions at the rate: {which} on fewer than ten of them. \
         A longer --time or a higher --rate says more."
    ))
}
