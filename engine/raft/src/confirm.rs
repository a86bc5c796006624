//! Rounds that confirm a leader, without Raft's thread on either side.
//!
//! The question is a Raft heartbeat with a context, and the answer its response (Ongaro's thesis, 6.4), so that any
//! member answers it, and one that has moved on deposes who asks. A process whose board shows the same term and leader answers
//! at once: it withdraws that from its board before a message of a later term leaves, so when it answered it had not voted for
//! anybody else. A round that comes to nothing says nothing: whoever asked then asks Raft.

use std::sync::Arc;

use futures::FutureExt;
use protobuf::Message as _;
use raft_rs::eraftpb::{Message, MessageType};
use types::{Error, Peer, RegionId, Result};

use crate::board::Board;
use crate::groups::{PeerStatus, Pending};
use crate::reply::reply_channel;
use crate::transport::Envelope;

/// What contexts of such rounds begin with. Those of read indexes begin with a peer's number, and are shorter.
const MARK: &[u8; 9] = b"confirm-1";
/// Messages of more bytes are none of such a round.
const MOST_BYTES: usize = 96;

/// A round that somebody waits for; given up with this.
struct Open {
    board: Arc<Board>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.board.confirmations.lock().give_up(self.number);
    }
}

impl Board {
    /// Asks a majority whether this node still leads a region in `term`. Resolves once it is known that at some time after
    /// the call nobody led it in a later one; none where it does not lead so, or a majority is not expected to answer soon. It
    /// may wait for ever.
    pub fn confirm(self: &Arc<Self>, region: RegionId, term: u64) -> Option<Pending<()>> {
        let mut questions = Vec::new();
        let pending = self.begin(region, term, &mut questions);
        self.transport.send(questions);
        pending
    }

    /// As [`Board::confirm`], of many regions with one message to each node.
    pub fn confirm_all(self: &Arc<Self>, regions: &[(RegionId, u64)]) -> Vec<Option<Pending<()>>> {
        let mut questions = Vec::new();
        let begin = |(region, term): &(RegionId, u64)| self.begin(*region, *term, &mut questions);
        let pending = regions.iter().map(begin).collect();
        self.transport.send(questions);
        pending
    }

    /// Begins a round, whose questions are to be sent then.
    fn begin(
        self: &Arc<Self>,
        region: RegionId,
        term: u64,
        questions: &mut Vec<Envelope>,
    ) -> Option<Pending<()>> {
        let status = self.status(region).filter(|status| status.decides && status.term == term)?;
        if status.alone {
            return Some(futures::future::ready(Ok(())).boxed());
        }
        let (reply, pending) = reply_channel("a leader's confirmation");
        let (number, asked) = self.confirmations.lock().begin(&status, reply)?;
        let open = Open { board: self.clone(), number };
        for voter in asked {
            questions.push(self.question(&status, voter, number).ok()?);
        }
        let board = self.clone();
        Some(
            async move {
                let answer = pending.await;
                drop(open);
                // Its own voice: it has not voted for anybody else either.
                answer.and_then(|()| board.check_leads(region, term))
            }
            .boxed(),
        )
    }

    fn check_leads(&self, region: RegionId, term: u64) -> Result<()> {
        let leads = |status: &PeerStatus| status.decides && status.term == term;
        match self.peers.read().get(&region).is_some_and(leads) {
            true => Ok(()),
            false => Err(Error::NotLeader { region, leader: None }),
        }
    }

    fn question(&self, status: &PeerStatus, to: Peer, number: u64) -> Result<Envelope> {
        let context = [MARK.as_slice(), &number.to_be_bytes()].concat();
        self.heartbeat(MessageType::MsgHeartbeat, status, to, context)
    }

    fn heartbeat(
        &self,
        kind: MessageType,
        status: &PeerStatus,
        to: Peer,
        context: Vec<u8>,
    ) -> Result<Envelope> {
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.from = status.peer.id;
        message.to = to.id;
        message.term = status.term;
        message.context = context.into();
        let message = message
            .write_to_bytes()
            .map_err(|error| Error::Invalid(format!("a heartbeat: {error}")))?;
        Ok(Envelope {
            region: status.region.id,
            epoch: status.region.epoch,
            from: status.peer,
            to,
            session: self.session,
            message,
            region_bytes: None,
            may_wait: false,
        })
    }

    /// Takes out of messages what belongs to such rounds, and answers it; the rest is for Raft's thread.
    pub fn take_confirmations(&self, messages: Vec<Envelope>) -> Vec<Envelope> {
        let mut answers = Vec::new();
        let mut rest = Vec::with_capacity(messages.len());
        for envelope in messages {
            match self.look(&envelope) {
                Look::NotOurs => rest.push(envelope),
                Look::Done => {}
                Look::Answer(answer) => answers.push(*answer),
            }
        }
        if !answers.is_empty() {
            self.transport.send(answers);
        }
        rest
    }

    fn look(&self, envelope: &Envelope) -> Look {
        if envelope.message.len() > MOST_BYTES {
            return Look::NotOurs;
        }
        // What cannot be read is reported where all messages are.
        let Ok(message) = Message::parse_from_bytes(&envelope.message) else {
            return Look::NotOurs;
        };
        let Some(number) = number_of(&message.context) else { return Look::NotOurs };
        match message.get_msg_type() {
            MessageType::MsgHeartbeat => self.answer(envelope, message),
            MessageType::MsgHeartbeatResponse => {
                self.answered(envelope, &message, number);
                Look::Done
            }
            _ => Look::NotOurs,
        }
    }

    /// Answers a leader whose term and leadership are shown here; any other is Raft's to answer.
    fn answer(&self, envelope: &Envelope, message: Message) -> Look {
        let region = envelope.region;
        if !self.participates(region) || !self.heeds(envelope.from.node, envelope.session) {
            return Look::Done;
        }
        let Some(status) = self.status(region) else { return Look::NotOurs };
        if status.term == message.term && status.leader.is_none() {
            // It looks for another leader. To Raft this would be a sign of life of the one it has given up.
            return Look::Done;
        }
        let same = status.term == message.term
            && status.peer == envelope.to
            && status.leader.is_some_and(|leader| leader.id == message.from)
            && status.fault.is_none();
        if !same {
            return Look::NotOurs;
        }
        let context = message.context.to_vec();
        match self.heartbeat(MessageType::MsgHeartbeatResponse, &status, envelope.from, context) {
            Ok(answer) => Look::Answer(Box::new(answer)),
            Err(_) => Look::NotOurs,
        }
    }

    fn answered(&self, envelope: &Envelope, message: &Message, number: u64) {
        if !self.heeds(envelope.from.node, envelope.session) || message.from != envelope.from.id {
            return;
        }
        let complete = {
            let mut rounds = self.confirmations.lock();
            rounds.answered(envelope.region, message.term, message.from, number)
        };
        if let Some(reply) = complete {
            reply.send(Ok(()));
        }
    }
}

/// What becomes of a message.
enum Look {
    /// It is for Raft.
    NotOurs,
    /// Nothing.
    Done,
    /// It is answered.
    Answer(Box<Envelope>),
}

fn number_of(context: &[u8]) -> Option<u64> {
    let number = context.strip_prefix(MARK.as_slice())?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}
