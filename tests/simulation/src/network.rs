//! The network: loses, delays, repeats, reorders and cuts, as its seed says.
//!
//! Messages of Raft may vanish without a word; a request gets an answer, an error that says whether it can have
//! arrived, or nothing until its caller gives up. Neither is ever changed on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use env::Random;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use placement::formation::ClusterId;
use placement::formation::{Answer, Request as FormationRequest};
use raft::{Envelope, SnapshotStream, Transport};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use types::{Error, NodeId, Result};

use crate::history::History;
use crate::process::Process;

/// A machine; nodes that it runs have numbers of their own.
pub(crate) type Host = u64;

/// How the network behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weather {
    /// Share of messages that are lost, and that arrive twice.
    pub loss: f64,
    pub repeat: f64,
    /// Longest ordinary delay, in milliseconds.
    pub delay_ms: u64,
    /// Share of messages that take much longer, and how much at most.
    pub straggle: f64,
    pub straggle_ms: u64,
}

impl Weather {
    pub(crate) const FAIR: Weather =
        Weather { loss: 0.0, repeat: 0.0, delay_ms: 4, straggle: 0.0, straggle_ms: 0 };
}

/// The network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    random: Random,
    history: History,
    state: Mutex<State>,
}

struct State {
    weather: Weather,
    /// Directions in which nothing arrives.
    cut: BTreeSet<(Host, Host)>,
    running: BTreeMap<Host, Arc<Process>>,
    homes: BTreeMap<NodeId, Host>,
    /// Snapshots on their way.
    snapshots: u64,
}

impl Network {
    pub(crate) fn new(random: Random, history: History) -> Self {
        let state = State {
            weather: Weather::FAIR,
            cut: BTreeSet::new(),
            running: BTreeMap::new(),
            homes: BTreeMap::new(),
            snapshots: 0,
        };
        Network(Arc::new(Inner { random, history, state: Mutex::new(state) }))
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.0.state.lock().weather = weather;
    }

    /// Cuts a direction, or mends it.
    pub(crate) fn cut(&self, from: Host, to: Host, cut: bool) {
        let mut state = self.0.state.lock();
        if cut {
            state.cut.insert((from, to));
        } else {
            state.cut.remove(&(from, to));
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.0.state.lock().cut.is_empty()
    }

    pub(crate) fn mend(&self) {
        self.0.state.lock().cut.clear();
    }

    pub(crate) fn snapshots_under_way(&self) -> u64 {
        self.0.state.lock().snapshots
    }

    /// A process is there to be reached.
    pub(crate) fn attach(&self, process: Arc<Process>) {
        self.0.state.lock().running.insert(process.host, process);
    }

    /// A node is on a host.
    pub(crate) fn locate(&self, node: NodeId, host: Host) {
        self.0.state.lock().homes.insert(node, host);
    }

    pub(crate) fn detach(&self, host: Host) {
        self.0.state.lock().running.remove(&host);
    }

    pub(crate) fn clear(&self) {
        let mut state = self.0.state.lock();
        state.running.clear();
        state.homes.clear();
    }

    pub(crate) fn process(&self, host: Host) -> Option<Arc<Process>> {
        self.0.state.lock().running.get(&host).cloned()
    }

    pub(crate) fn home(&self, node: NodeId) -> Option<Host> {
        self.0.state.lock().homes.get(&node).copied()
    }

    fn is_cut(&self, from: Host, to: Host) -> bool {
        self.0.state.lock().cut.contains(&(from, to))
    }

    /// How long the next message takes, or none if it is lost.
    fn leg(&self, from: Host, to: Host) -> Option<Duration> {
        let weather = self.0.state.lock().weather;
        let random = &self.0.random;
        if self.is_cut(from, to) || (weather.loss > 0.0 && random.chance(weather.loss)) {
            return None;
        }
        let most = match weather.straggle > 0.0 && random.chance(weather.straggle) {
            true => weather.straggle_ms,
            false => weather.delay_ms,
        };
        Some(Duration::from_millis(1 + random.below(most.max(1))))
    }

    fn repeats(&self) -> bool {
        let repeat = self.0.state.lock().weather.repeat;
        repeat > 0.0 && self.0.random.chance(repeat)
    }

    /// What becomes of a request whose connection is gone.
    async fn vanish<T>(&self) -> Result<T> {
        if self.0.random.chance(0.3) {
            // Nothing says that it is: the caller finds out by its own clock.
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(5 + self.0.random.below(2_000))).await;
        Err(Error::timeout("an answer; the connection broke", Duration::from_millis(1)))
    }

    /// Calls a host. `serve` makes the answer there, or nothing where nobody answers such requests.
    pub(crate) async fn call<A: Send + 'static>(
        &self,
        from: &Arc<Process>,
        to: Host,
        (what, bytes): (&'static str, Vec<u8>),
        serve: impl Fn(&Process) -> Option<BoxFuture<'static, A>> + Send,
    ) -> Result<A> {
        if !from.is_alive() {
            return Err(Error::Unavailable("this process has ended".into()));
        }
        let Some(delay) = self.leg(from.host, to) else { return self.vanish().await };
        let again = self.repeats();
        sleep(delay).await;
        let Some(there) = self.process(to) else {
            return Err(Error::Unavailable(format!("host {to} refused the connection")));
        };
        if self.is_cut(from.host, to) || !there.running().await {
            return self.vanish().await;
        }
        self.0.history.bytes(what, &[from.host, to], &bytes);
        let none = || Error::Unavailable(format!("host {to} does not answer such requests"));
        let answer = serve(&there).ok_or_else(none)?;
        if again && let Some(second) = serve(&there) {
            let later = Duration::from_millis(self.0.random.below(2_000));
            tokio::spawn(async move {
                sleep(later).await;
                second.await;
            });
        }
        let (sender, receiver) = oneshot::channel();
        // Whoever asked may be gone before it is done.
        tokio::spawn(async move {
            let _ = sender.send(answer.await);
        });
        let answer = tokio::select! {
            biased;
            () = there.died() => None,
            answer = receiver => answer.ok(),
        };
        let Some(answer) = answer.filter(|_| there.is_alive()) else { return self.vanish().await };
        there.running().await;
        let Some(delay) = self.leg(to, from.host) else { return self.vanish().await };
        sleep(delay).await;
        if self.is_cut(to, from.host) || !there.is_alive() || !from.running().await {
            return self.vanish().await;
        }
        Ok(answer)
    }

    /// What a process sends Raft's messages through.
    pub(crate) fn port(&self, process: Arc<Process>) -> Arc<dyn Transport> {
        Arc::new(Port { network: self.clone(), process })
    }
}

struct Port {
    network: Network,
    process: Arc<Process>,
}

impl Port {
    fn post(&self, envelope: &Envelope) {
        let (network, from) = (self.network.clone(), self.process.clone());
        let Some(to) = network.home(envelope.to.node) else { return };
        let Some(delay) = network.leg(from.host, to) else { return };
        let envelope = envelope.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            from.running().await;
            let Some(there) = network.process(to) else { return };
            if network.is_cut(from.host, to) || !there.running().await {
                return;
            }
            let numbers = [from.host, to, envelope.region];
            network.0.history.bytes("raft", &numbers, &envelope.message);
            if let Some(raft) = there.handlers().raft {
                raft.receive(envelope);
            }
        });
    }

    async fn carry(network: Network, from: Arc<Process>, stream: SnapshotStream) -> Option<()> {
        let SnapshotStream { header, mut source, report } = stream;
        let to = network.home(header.to.node)?;
        let region = header.region;
        sleep(network.leg(from.host, to)?).await;
        let there = network.process(to)?;
        let raft = there.handlers().raft?;
        let mut spool = raft.spool(header).ok()?;
        // At the receiver's pace: the machine goes on meanwhile.
        while let Some(chunk) = source.next_chunk().ok()? {
            sleep(network.leg(from.host, to)?).await;
            if !from.running().await || !there.running().await || network.is_cut(from.host, to) {
                return None;
            }
            network.0.history.bytes("chunk", &[from.host, to, region], &chunk);
            spool.push(chunk).ok()?;
        }
        let spooled = spool.finish().ok()?;
        if !there.is_alive() {
            return None;
        }
        raft.receive_snapshot(spooled);
        network.0.history.event("snapshot", &[from.host, to, region]);
        // The sender's answer comes back by a way of its own, which a member's messages may overtake.
        sleep(network.leg(to, from.host)?).await;
        report.arrived();
        Some(())
    }
}

impl Transport for Port {
    fn send(&self, messages: Vec<Envelope>) {
        if !self.process.is_alive() {
            return;
        }
        for message in messages {
            self.post(&message);
            if self.network.repeats() {
                self.post(&message);
            }
        }
    }

    fn send_snapshot(&self, stream: SnapshotStream) {
        let (network, from) = (self.network.clone(), self.process.clone());
        network.0.state.lock().snapshots += 1;
        tokio::spawn(async move {
            // A snapshot that does not arrive is reported by its report being dropped.
            Port::carry(network.clone(), from, stream).await;
            network.0.state.lock().snapshots -= 1;
        });
    }
}

/// How long a member may take to say how far it is in forming a cluster.
const FORMATION_TIMEOUT: Duration = Duration::from_secs(2);

/// How a process asks row nodes and placement.
pub(crate) struct Caller {
    pub network: Network,
    pub process: Arc<Process>,
}

fn encoded<T: serde::Serialize>(request: &T) -> Vec<u8> {
    postcard::to_stdvec(request).unwrap_or_default()
}

#[async_trait]
impl txn::RowTransport for Caller {
    async fn call(&self, node: NodeId, request: txn::api::Request) -> Result<txn::api::Response> {
        let home = self.network.home(node);
        let to = home.ok_or_else(|| Error::not_found("node", node.to_string()))?;
        let bytes = encoded(&request);
        let answer = self.network.call(&self.process, to, ("txn", bytes), |there| {
            let service = there.handlers().txn?;
            let request = request.clone();
            Some(Box::pin(async move { service.handle(request).await }))
        });
        answer.await
    }
}

#[async_trait]
impl placement::PlacementTransport for Caller {
    async fn call(
        &self,
        address: &str,
        request: placement::api::Request,
    ) -> Result<placement::api::Response> {
        let to: Host = address.parse().map_err(|_| Error::not_found("host", address))?;
        let bytes = encoded(&request);
        let once = matches!(request, placement::api::Request::Change(_));
        let served = Mutex::new(false);
        let answer = self.network.call(&self.process, to, ("placement", bytes), |there| {
            // A change of the catalog is asked for once, and never repeated by a connection.
            if std::mem::replace(&mut *served.lock(), true) && once {
                return None;
            }
            let service = there.handlers().placement?;
            let request = request.clone();
            Some(Box::pin(async move { service.handle(request).await }))
        });
        answer.await
    }

    fn here(&self) -> Option<Arc<placement::PlacementService>> {
        self.process.handlers().placement
    }
}

#[async_trait]
impl placement::entry::FormationTransport for Caller {
    async fn send(&self, address: &str, request: &FormationRequest) -> Result<Answer> {
        let to: Host = address.parse().map_err(|_| Error::not_found("host", address))?;
        let bytes = encoded(request);
        let answer = self.network.call(&self.process, to, ("formation", bytes), |there| {
            let participant = there.handlers().participant?;
            let request = request.clone();
            Some(Box::pin(async move { participant.handle(&request) }))
        });
        let late = |_| Err(Error::timeout("a member", FORMATION_TIMEOUT));
        timeout(FORMATION_TIMEOUT, answer).await.unwrap_or_else(late)?
    }

    // There is one cluster, and nobody else's requests.
    fn join(&self, _: ClusterId) {}
}
