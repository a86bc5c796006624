//! Scripts of commands and the state that they lead to: catalog, regions, numbers, leases.

use std::collections::BTreeMap;
use std::fmt::Write;

use types::{
    Column, ColumnType, Epoch, Index, IndexState, IntWidth, Peer, PeerRole, Region, Table,
    Timestamp,
};

use super::scripts::{Args, Script, run_all};
use crate::api::{CatalogChange, Grants, Import, Node, NodeRole, Renamed, Session, User};
use crate::catalog::EligibleNodes;
use crate::command::{Command, Outcome};
use crate::state::State;

#[test]
fn state_scripts() {
    run_all::<StateScript>("state");
}

/// A table `id BIGINT PRIMARY KEY, c1 BIGINT, …` with one index for each name.
pub fn table(database: &str, name: &str, indexes: &[String]) -> Table {
    let column = |id: u32| Column {
        id,
        name: if id == 1 { "id".into() } else { format!("c{id}") },
        ty: ColumnType::Int { width: IntWidth::Big, unsigned: false },
        nullable: id != 1,
        default: None,
        original: None,
        auto_increment: id == 1,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    };
    let index = |(at, name): (usize, &String)| Index {
        id: at as u32 + 1,
        name: name.clone(),
        columns: vec![2],
        parts: BTreeMap::new(),
        unique: false,
        visible: true,
        state: IndexState::Public { since: Timestamp::ZERO },
    };
    Table {
        id: 0,
        version: 0,
        database: database.into(),
        name: name.into(),
        columns: vec![column(1), column(2)],
        primary_key: vec![1],
        indexes: indexes.iter().enumerate().map(index).collect(),
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

#[derive(Default)]
struct StateScript {
    state: State,
    eligible: Vec<u64>,
}

impl StateScript {
    fn table(&self, path: &str) -> Table {
        let (database, name) = path.split_once('.').unwrap();
        match self.state.catalog.table_named(database, name) {
            Some(known) => Table::clone(known),
            // A description that no longer exists, or never did.
            None => Table { id: 999, version: 7, ..table(database, name, &[]) },
        }
    }

    fn change(&mut self, change: CatalogChange, args: &Args) -> Command {
        let now = Timestamp::pack(args.named_number("now", 1_000), 0);
        Command::Change { change, eligible: EligibleNodes(self.eligible.clone()), now }
    }

    fn create_table(&mut self, args: &Args) -> Command {
        let (database, name) = args.text(0).split_once('.').unwrap();
        let mut table = table(database, name, &args.list("indexes"));
        table.columnar_replicas = args.named_number("replicas", 0) as u8;
        if args.has("without-key") {
            table.primary_key.clear();
        }
        if args.has("same-columns") {
            table.columns[1].name = "ID".into();
        }
        self.change(CatalogChange::CreateTable(Box::new(table)), args)
    }

    fn alter_table(&mut self, args: &Args) -> Command {
        let mut table = self.table(args.text(0));
        table.version += 1;
        for name in args.list("add") {
            let id = crate::api::next_index_id(&table);
            let state = IndexState::WriteOnly;
            let (columns, parts) = (vec![2], BTreeMap::new());
            let index = Index { id, name, columns, parts, unique: true, visible: true, state };
            table.indexes.push(index);
        }
        let dropped = args.list("drop");
        table.indexes.retain(|index| !dropped.contains(&index.name));
        if let Some(name) = args.named("rename") {
            table.name = name.into();
        }
        if let Some(id) = args.named("column") {
            let column =
                Column { id: id.parse().unwrap(), name: "new".into(), ..table.columns[1].clone() };
            table.columns.push(column);
        }
        if let (true, Some(last)) = (args.has("hide"), table.columns.last_mut()) {
            last.hidden = true;
        }
        if args.has("not-null") {
            table.columns[1].nullable = false;
        }
        if args.has("narrow") {
            table.columns[1].ty = ColumnType::Int { width: IntWidth::Int, unsigned: false };
        }
        if args.has("drop-column") {
            table.columns.pop();
        }
        table.columnar_replicas =
            args.named_number("replicas", u64::from(table.columnar_replicas)) as u8;
        table.version = args.named_number("version", u64::from(table.version)) as u32;
        self.change(CatalogChange::AlterTable(Box::new(table)), args)
    }

    /// `report 1000 [like=1000] [version=] [conf=] [from=] [to=] [learner=]`: what a leader says.
    fn report(&self, args: &Args) -> Command {
        let id = args.number(0);
        let like = args.named_number("like", id);
        let known = self.state.regions.get(&like).map(|record| &record.region);
        let known = known.or(self.state.tombstones.get(&like).map(|tombstone| &tombstone.region));
        let mut region: Region = known.unwrap().clone();
        region.id = id;
        region.epoch = Epoch {
            version: args.named_number("version", region.epoch.version),
            conf: args.named_number("conf", region.epoch.conf),
        };
        // `i5` is a key of the index area, `5` a record's, `r` the first record's.
        let key = |text: &str| {
            let (area, number) = match (text.strip_prefix('i'), text) {
                (Some(number), _) => (b"i", number),
                (None, text) => (b"r", text.trim_start_matches('r')),
            };
            let number = number.parse::<u8>().ok();
            [&region.start[..9], area, number.as_slice()].concat()
        };
        let (start, end) = (args.named("from").map(key), args.named("to").map(key));
        region.start = start.unwrap_or(region.start);
        region.end = end.unwrap_or(region.end);
        if let Some(node) = args.named("learner") {
            let node = node.parse().unwrap();
            region.peers.push(Peer { id: 5_000 + node, node, role: PeerRole::Learner });
        }
        let now = Timestamp::pack(args.named_number("now", 1_000), 0);
        Command::Report { regions: vec![region], created: Vec::new(), now }
    }

    fn command(&mut self, name: &str, args: &Args) -> Command {
        let user = |args: &Args| {
            let (name, host) = args.text(0).split_once('@').unwrap();
            let credentials = args.named("password").unwrap_or_default().as_bytes().to_vec();
            let (name, host, grants) = (name.into(), host.into(), Grants::default());
            User { name, host, credentials, grants }
        };
        match name {
            "create-database" => {
                self.change(CatalogChange::CreateDatabase(args.text(0).into()), args)
            }
            "drop-database" => self.change(CatalogChange::DropDatabase(args.text(0).into()), args),
            "create-table" => self.create_table(args),
            "alter-table" => self.alter_table(args),
            "drop-table" => {
                let id = self.table(args.text(0)).id;
                self.change(CatalogChange::DropTable(id), args)
            }
            "truncate-table" => {
                let id = self.table(args.text(0)).id;
                self.change(CatalogChange::TruncateTable(id), args)
            }
            "rename-tables" => {
                let renamed = |pair: String| {
                    let (from, to) = pair.split_once('>').unwrap();
                    let (database, name) = to.split_once('.').unwrap();
                    let Table { id: table, version, .. } = self.table(from);
                    let (database, name) = (database.into(), name.into());
                    Renamed { table, version: version + 1, database, name }
                };
                let renamed = args.list("pairs").into_iter().map(renamed).collect();
                self.change(CatalogChange::RenameTables(renamed), args)
            }
            "import" => {
                let table = self.table(args.text(0));
                let import = args.named("digest").map(|digest| Import {
                    digest: digest.parse().unwrap(),
                    commit_ts: args.named("at").map(|at| Timestamp::pack(at.parse().unwrap(), 0)),
                });
                let version = args.named_number("version", u64::from(table.version) + 1) as u32;
                self.change(CatalogChange::Import { table: table.id, version, import }, args)
            }
            "put-user" => self.change(CatalogChange::PutUser(user(args)), args),
            "drop-user" => {
                let User { name, host, .. } = user(args);
                self.change(CatalogChange::DropUser { name, host }, args)
            }
            "auto-increment" => Command::AutoIncrement {
                table: self.table(args.text(0)).id,
                count: args.named_number("count", 1),
                above: args.named_number("above", 0),
            },
            "ids" => Command::TakeIds { count: args.number(0) as u32 },
            "register" => Command::Register {
                session: Session::default(),
                node: Node {
                    id: args.number(0),
                    role: if args.text(1) == "row" { NodeRole::Row } else { NodeRole::Columnar },
                    rpc_address: args.named("at").unwrap_or("127.0.0.1:1").into(),
                    client_address: String::new(),
                },
            },
            "report" => self.report(args),
            "created" => Command::Report {
                regions: Vec::new(),
                created: vec![(args.number(0), args.named_number("on", 1))],
                now: Timestamp::ZERO,
            },
            "raise-version" => Command::RaiseVersion(args.number(0) as u32),
            "purge" => Command::Purge(vec![args.number(0)]),
            "take-lease" => Command::TakeLease {
                ts: Timestamp::pack(args.named_number("at", 0), 0),
                owner: args.named("owner").unwrap_or("me").into(),
                now_ms: args.named_number("now", 0),
                ttl_ms: args.named_number("ttl", 1_000),
            },
            "renew-lease" => Command::RenewLease {
                lease: args.number(0),
                now_ms: args.named_number("now", 0),
                from_ms: args.named_number("now", 0),
                ttl_ms: args.named_number("ttl", 1_000),
            },
            "release-lease" => Command::ReleaseLease(args.number(0)),
            "expire-leases" => Command::ExpireLeases { now_ms: args.named_number("now", 0) },
            "extend" => Command::ExtendWindow { until_ms: args.number(0) },
            "signing-key" => Command::SetSigningKey(args.text(0).into()),
            _ => panic!("unknown command {name}"),
        }
    }

    fn show_region(out: &mut String, region: &Region) {
        let peers: Vec<String> = region
            .peers
            .iter()
            .map(|peer| {
                format!(
                    "{}on{}{}",
                    peer.id,
                    peer.node,
                    if peer.role == PeerRole::Learner { "L" } else { "" }
                )
            })
            .collect();
        // Keys of a test's table are the table's prefix and one byte.
        let shared = matches!(region.kind, types::RegionKind::Table(_));
        let byte = |key: &[u8]| {
            let area = key.get(9).filter(|area| shared && **area != b's');
            let area = area.map_or(String::new(), |area| (*area as char).to_string());
            area + &key.get(10).map_or("*".into(), |byte| byte.to_string())
        };
        let (start, end) = match region.kind {
            types::RegionKind::Index(..) => ("*".into(), "*".into()),
            _ => (byte(&region.start), byte(&region.end)),
        };
        write!(
            out,
            "{} {:?} {start}..{end} v{}c{} peers={}",
            region.id,
            region.kind,
            region.epoch.version,
            region.epoch.conf,
            peers.join(",")
        )
        .unwrap();
    }

    fn regions(&self) -> String {
        let mut out = String::new();
        for record in self.state.regions.values() {
            Self::show_region(&mut out, &record.region);
            if !record.uncreated.is_empty() {
                write!(out, " uncreated={:?}", record.uncreated).unwrap();
            }
            out.push('\n');
        }
        for tombstone in self.state.tombstones.values() {
            out.push_str("dropped ");
            Self::show_region(&mut out, &tombstone.region);
            writeln!(out, " at {}", tombstone.dropped.physical_ms()).unwrap();
        }
        out
    }

    fn catalog(&self) -> String {
        let catalog = &self.state.catalog;
        let mut out = format!("version {}: {}\n", catalog.version, catalog.databases.join(" "));
        for table in &catalog.tables {
            let indexes: Vec<String> =
                table.indexes.iter().map(|index| format!("{}={}", index.name, index.id)).collect();
            writeln!(
                out,
                "{} {}.{} v{} replicas={} indexes=[{}]",
                table.id,
                table.database,
                table.name,
                table.version,
                table.columnar_replicas,
                indexes.join(" ")
            )
            .unwrap();
        }
        for (table, Import { digest, commit_ts }) in &catalog.importing {
            let at = commit_ts.map_or("not yet".into(), |ts| ts.physical_ms().to_string());
            writeln!(out, "{table} is imported: digest {digest}, visible at {at}").unwrap();
        }
        for user in &catalog.users {
            let password = if user.credentials.is_empty() { "" } else { " with password" };
            writeln!(out, "{}@{}{password}", user.name, user.host).unwrap();
        }
        out
    }

    fn leases(&self) -> String {
        let mut out = format!("floor {}\n", self.state.safe_point.floor.physical_ms());
        for lease in self.state.leases.values() {
            let at = lease.ts.physical_ms();
            writeln!(out, "{} at {at} of {} until {}", lease.id, lease.owner, lease.expires_ms)
                .unwrap();
        }
        out
    }
}

impl Script for StateScript {
    fn line(&mut self, name: &str, args: &Args) -> String {
        match name {
            "eligible" => {
                self.eligible = args.plain.iter().map(|node| node.parse().unwrap()).collect();
                return String::new();
            }
            "floor" => {
                self.state.safe_point.floor = Timestamp::pack(args.number(0), 0);
                return String::new();
            }
            "regions" => return self.regions(),
            "catalog" => return self.catalog(),
            "leases" => return self.leases(),
            "nodes" => return format!("{:#?}", self.state.nodes.values().collect::<Vec<_>>()),
            "mark" => return self.state.high_water_ms.to_string(),
            "key" => return String::from_utf8_lossy(&self.state.signing_key).into_owned(),
            "tiling" => {
                let table = self.table(args.text(0)).id;
                let kind = match args.named("index") {
                    Some(index) => types::RegionKind::Index(table, index.parse().unwrap()),
                    None => types::RegionKind::Records(table),
                };
                let whole = if self.state.is_tiled() { "" } else { ", cluster with a gap" };
                return match self.state.tiling(kind) {
                    Some(tiles) => format!("{} regions{whole}", tiles.len()),
                    None => format!("with a gap{whole}"),
                };
            }
            "existed" => {
                let (id, at) = (self.table(args.text(0)).id, Timestamp::pack(args.number(1), 0));
                let catalog = &self.state.catalog;
                return format!(
                    "{}{}",
                    if catalog.existed_at(id, at) { "yes" } else { "no" },
                    if catalog.imported_anew(id, at) { ", imported anew" } else { "" }
                );
            }
            "locate" => {
                let id = self.table(args.text(0)).id;
                let start = match args.has("entry") {
                    true => types::key::table_start(id),
                    false => types::key::records_start(id),
                };
                let key = [start, vec![args.number(1) as u8]].concat();
                let found = self.state.locate(&key);
                return found.map_or("nowhere".into(), |found| found.region.id.to_string());
            }
            _ => {}
        }
        let command = self.command(name, args);
        let before = self.state.clone();
        // A command that is replicated must survive its encoding.
        let bytes = postcard::to_stdvec(&command).unwrap();
        assert_eq!(postcard::from_bytes::<Command>(&bytes).unwrap(), command);
        match self.state.apply(command) {
            Ok(Outcome::Done) => "done".into(),
            Ok(Outcome::First(first)) => first.to_string(),
            Ok(Outcome::Lease(lease)) => format!("lease {} until {}", lease.id, lease.expires_ms),
            Ok(Outcome::Lock(held)) => held.map_or("taken".into(), |held| format!("{held:?}")),
            Ok(Outcome::Changed { catalog, created, .. }) => {
                format!("version {catalog}, created {created:?}")
            }
            Err(error) => {
                assert_eq!(self.state, before, "a refused command changed the state");
                format!("error: {error}")
            }
        }
    }
}
