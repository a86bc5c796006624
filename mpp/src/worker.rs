//! The worker as a service whose tasks run on the query threads.
//!
//! The internal port is served by the threads that also answer Raft and heartbeats; a task that
//! computed there would make its node look dead. What they compute is paid for by the group that the call names.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;

use crate::life::Life;
use crate::payer::Payers;

/// Runs each call of a service, and all tasks that the call starts, on other threads. What a call
/// brings lives as long as its request is open.
#[derive(Clone)]
pub(crate) struct OnQueryThreads<S> {
    inner: S,
    threads: Handle,
    payers: Payers,
}

impl<S> OnQueryThreads<S> {
    pub fn new(inner: S, threads: Handle, payers: Payers) -> Self {
        OnQueryThreads { inner, threads, payers }
    }
}

impl<S: NamedService> NamedService for OnQueryThreads<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for OnQueryThreads<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let life = Life::default();
        let request = request.map(|body| life.tied_to(body));
        let (headers, payers) = (request.headers().clone(), self.payers.clone());
        let call = life.scope(self.inner.call(request));
        let call = async move {
            let payer = payers.of_headers(&headers).await;
            payer.work().run(call).await
        };
        let call = AbortOnDropHandle::new(self.threads.spawn(call));
        let answer = |ended: Result<_, tokio::task::JoinError>| {
            // The service has its own error for a panic: it was cut off.
            ended.unwrap_or_else(|_| Ok(Status::cancelled("the call was ended").into_http()))
        };
        call.map(answer).boxed()
    }
}
