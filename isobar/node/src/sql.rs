//! The server of MySQL clients, and the SQL node, which is that alone and holds no data.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpp::remote::RemoteAnalytic;
use placement::accounts;
use placement::api::{Node, NodeReport, NodeRole};
use resources::Ledger;
use sql::engine::Engine;
use sql::session::AbandonedChanges;
use storage::cluster::ClusterStorage;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use txn::TxnClient;
use types::NodeId;
use wire::tls::{CertificatePaths, server_config};
use wire::{Connections, Options, Server};

use crate::Common;
use crate::backend::{ServerHost, SqlBackend};
use crate::settings::NodeSettings;
use futures::future::BoxFuture;
use placement::entry::Me;

/// Pause after a heartbeat that failed.
const RETRY: Duration = Duration::from_millis(200);

/// What answers the MySQL clients of a process.
pub(crate) struct SqlServer {
    address: SocketAddr,
    txn: TxnClient,
    /// Ends what statements have left undone.
    watching: JoinHandle<()>,
    /// Tells placement what resource groups use.
    accounting: JoinHandle<()>,
    open: CancellationToken,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl SqlServer {
    /// Takes the address for MySQL clients, as a node; they are served once it is opened.
    pub(crate) async fn start(
        common: &Common,
        node: NodeId,
        settings: &mut NodeSettings,
    ) -> Result<SqlServer> {
        let config = &common.config;
        let address = config.mysql_address.context("MySQL clients need `mysql_address`")?;
        let given = config.tls_certificate.clone().zip(config.tls_key.clone());
        let given = given.map(|(certificate, key)| CertificatePaths { certificate, key });
        let tls = server_config(given.as_ref(), &config.data_dir).context("TLS certificate")?;

        let txn = common.transactions();
        let storage = ClusterStorage::new(txn.clone(), common.placement.clone());
        let analytic = RemoteAnalytic::new(
            common.placement.clone(),
            common.channels.clone(),
            common.clock.clone(),
        );
        let connections = Arc::new(Connections::default());
        let allowed = connections.clone();
        settings.turn_by("max_connections", move |most| {
            most.parse().into_iter().for_each(|most| allowed.allow(most));
        });
        let ledger = Arc::new(Ledger::beside(common.clock.clone(), common.ready.clone()));
        let channels = common.channels.clone();
        let accounting =
            accounts::keep(ledger.clone(), common.placement.clone(), node, move || {
                channels.version()
            });
        let channels = common.channels.clone();
        let watches =
            accounts::watch(ledger.clone(), common.placement.clone(), move || channels.version());
        let accounting = tokio::spawn(async { tokio::join!(accounting, watches).0 });
        // NOW() is what the machine says, whatever that is.
        let engine = Engine::new(Arc::new(storage), Arc::new(env::RealClock::new()))
            .with_node(node)
            .with_ledger(ledger)
            .with_analytic(Arc::new(analytic))
            .with_host(Arc::new(ServerHost(connections.clone())));
        let watching = AbandonedChanges::new(engine.clone());
        let backend = Arc::new(SqlBackend::new(engine, common.placement.clone()));
        let max_connections = config.max_connections;
        let options = Options { max_connections, tls: Some(tls), ..Options::default() };
        let server = Server::bind(address, options, backend, connections)
            .await
            .with_context(|| format!("cannot listen on {address}: choose another mysql_address"))?;
        let (open, stop) = (CancellationToken::new(), CancellationToken::new());
        let (opened, stopped) = (open.clone(), stop.clone());
        let serving = tokio::spawn(async move {
            tokio::select! {
                () = opened.cancelled() => server.run(stopped).await,
                () = stopped.cancelled() => {}
            }
        });
        let watching = tokio::spawn(watching.run());
        Ok(SqlServer { address, txn, watching, accounting, open, stop, serving })
    }

    /// Serves clients from now on.
    pub(crate) fn open(&self) {
        tracing::info!(address = %self.address, "server of MySQL clients is listening");
        self.open.cancel();
    }

    /// Where its clients connect.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// What its transactions are.
    pub(crate) fn transactions(&self) -> &TxnClient {
        &self.txn
    }

    pub(crate) async fn stop(self) {
        self.watching.abort();
        self.accounting.abort();
        self.stop.cancel();
        crate::end("MySQL port", self.serving).await;
        // Second phases of acknowledged transactions go on in the background; give them their time.
        if tokio::time::timeout(crate::STOP_TIMEOUT, self.txn.settle()).await.is_err() {
            tracing::warn!("some transactions are left for others to finish");
        }
    }
}

pub(crate) async fn run(common: Common, shutdown: BoxFuture<'_, ()>) -> Result<()> {
    let participant = common.participant()?;
    let identity = common.establish(&participant).await?;
    let mut settings = common.settings();
    let server = SqlServer::start(&common, identity.node, &mut settings).await?;
    server.open();
    let me = Node {
        id: identity.node,
        role: NodeRole::Sql,
        rpc_address: common.config.rpc_address.to_string(),
        client_address: server.address(),
    };
    tokio::select! {
        () = common.report_processors(identity.node) => {}
        () = common.keep_settings(identity.node, settings) => {}
        outcome = register_and_send_heartbeats(&common, &identity, me, server.transactions()) => outcome?,
        () = shutdown => tracing::info!("stopping"),
    }
    server.stop().await;
    Ok(())
}

/// Reports to placement regularly that this node lives, and the oldest of its transactions.
async fn register_and_send_heartbeats(
    common: &Common,
    who: &Me,
    me: Node,
    txn: &TxnClient,
) -> Result<()> {
    let id = me.id;
    common.register(who, me).await?;
    loop {
        let report = NodeReport { oldest_start: txn.oldest_start(), ..NodeReport::default() };
        match common.placement.heartbeat(id, report, Vec::new()).await {
            Ok(_) => {
                for node in common.placement.known_nodes() {
                    common.rpc.book().insert(node.id, node.rpc_address);
                }
            }
            // This process stands for no node any more.
            Err(error @ types::Error::Revoked(_)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "placement did not take this node's heartbeat");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
