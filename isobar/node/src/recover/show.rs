//! What `recover-unsafe` says, for people who have to decide.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use raft::{Outcome, Replica};
use types::{NodeId, PeerRole, Region, RegionKind, Table, TableId};

use super::plan::{Group, Plan};
use super::report::Report;
use super::survivor::Preview;

/// Names of tables, as far as they are known.
type Names = BTreeMap<TableId, String>;

fn names<'a>(tables: impl Iterator<Item = &'a Table>) -> Names {
    tables.map(|table| (table.id, format!("{}.{}", table.database, table.name))).collect()
}

fn of_table(table: TableId, names: &Names) -> String {
    names.get(&table).cloned().unwrap_or_else(|| format!("table {table}"))
}

fn keys(region: &Region, names: &Names) -> String {
    match region.kind {
        RegionKind::Placement => "placement".to_owned(),
        RegionKind::Records(table) => format!("rows of {}", of_table(table, names)),
        RegionKind::Index(table, index) => {
            format!("index {index} of {}", of_table(table, names))
        }
        RegionKind::Table(table) if region.records().is_none() => {
            format!("indexes of {}", of_table(table, names))
        }
        RegionKind::Table(table) => format!("rows and indexes of {}", of_table(table, names)),
    }
}

fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(", ") }
}

fn holding(replica: &Replica) -> String {
    let role = match replica.peer.role {
        PeerRole::Voter => "voter",
        PeerRole::Learner => "learner",
    };
    format!(
        "{role}, last entry {} of term {}, committed {}, applied {}",
        replica.last.index, replica.last.term, replica.committed.index, replica.applied.index
    )
}

/// What a survivor wrote down.
pub(super) fn report(report: &Report, path: &Path) -> String {
    let names = names(report.tables.iter());
    let mut text = format!("Row node {} holds:\n", report.node);
    for replica in &report.replicas {
        let id = replica.region.id;
        let what = match &replica.fault {
            Some(fault) => fault.clone(),
            None if !replica.holds_data() => "nothing: it waits for a snapshot".to_owned(),
            None => holding(replica),
        };
        let _ = writeln!(text, "{id:>8}  {:<28} {what}", keys(&replica.region, &names));
    }
    let _ = writeln!(
        text,
        "\nWritten to {}. Copy it to every other survivor and name it there by --with.",
        path.display()
    );
    text
}

/// What will be done, and lost by it.
pub(super) fn plan(plan: &Plan, held: &Report, preview: Option<&Preview>) -> String {
    let catalog = preview.into_iter().flat_map(|preview| preview.tables.iter().map(Arc::as_ref));
    let names = names(held.tables.iter().chain(catalog));
    let mut text = format!("Survivors: row node {}.\n", listed(&plan.nodes));
    let _ = writeln!(
        text,
        "\nThese groups have lost their quorum and go on from one survivor. What their lost voters \
         acknowledged after its last entry is lost:\n\n{:>8}  {:<28} {:<14} goes on",
        "group", "keys", "voters lost"
    );
    for group in &plan.groups {
        if let Some(line) = outcome(group) {
            let (id, lost) = (group.region.id, listed(&group.lost));
            let _ =
                writeln!(text, "{id:>8}  {:<28} {lost:<14} {line}", keys(&group.region, &names));
        }
    }
    let kept = plan.groups.iter().filter(|group| group.outcome == Outcome::Quorum).count();
    if kept > 0 {
        let _ = writeln!(text, "\n{kept} groups have their quorum and stay as they are.");
    }
    match (preview, plan.home()) {
        (Some(preview), _) => text.push_str(&lost_by_placement(preview, &names)),
        (None, Some(home)) => {
            let _ = writeln!(
                text,
                "\nRow node {home} goes on with placement: the command says there which names are lost."
            );
        }
        (None, None) => text.push_str(
            "\nPlacement has its quorum: lost nodes are not shut out here. Wipe their disks before \
             anything is started.\n",
        ),
    }
    text.push_str(
        "\nEach group goes on by itself: of a transaction that wrote to several, a part may be lost. \
         Columnar\nreplicas are made anew. Lost row nodes must never be started with their old disks.\n",
    );
    text
}

fn outcome(group: &Group) -> Option<String> {
    match (&group.outcome, &group.held) {
        (Outcome::Quorum, _) => None,
        (Outcome::Alone { node, .. }, Some(held)) => {
            Some(format!("on row node {node} ({})", holding(held)))
        }
        _ => Some("nowhere: no survivor holds its data".to_owned()),
    }
}

fn lost_by_placement(preview: &Preview, names: &Names) -> String {
    let lost = &preview.lost;
    let node = |(id, address): (&NodeId, &String)| match address.as_str() {
        "" => format!("row node {id}"),
        address => format!("row node {id} ({address})"),
    };
    let mut text = String::new();
    let mut say = |what: &str, items: String| {
        let _ = writeln!(text, "  {what}: {items}");
    };
    say("never come back under their numbers", listed(lost.nodes.iter().map(node)));
    let names_of =
        |tables: &BTreeSet<TableId>| listed(tables.iter().map(|id| of_table(*id, names)));
    if !lost.tables.is_empty() {
        say("dropped, for their names are lost", names_of(&lost.tables));
    }
    if !lost.emptied.is_empty() {
        let ranges = lost.emptied.iter().map(|region| keys(region, names));
        say("empty, for nobody holds them", listed(ranges));
    }
    if !lost.indexes.is_empty() {
        let index = |(table, index): &(TableId, u32)| {
            format!("index {index} of {}", of_table(*table, names))
        };
        say("dropped, for entries of them may be lost", listed(lost.indexes.iter().map(index)));
    }
    if lost.leases > 0 {
        say("snapshot leases that end", lost.leases.to_string());
    }
    format!(
        "\nPlacement loses every table, user and setting that it was given after its last entry, and:\n\
         {text}\n  Snapshots and transactions from before are refused. Numbers and timestamps go on far \
         above all that is known.\n"
    )
}

/// What is to be done next.
pub(super) fn done(plan: &Plan) -> String {
    let others = if plan.nodes.len() > 1 {
        "Run it on the other survivors, too, with the same reports. Then start"
    } else {
        "Start"
    };
    format!(
        "\nDone. {others} the nodes that are left, and row nodes with empty directories in the place of \
         the lost\nones. `isobar ctl status` shows when every region has its voters again.\n"
    )
}
