//! Panics of a call: the call fails, and its connection goes on with all the others that it carries.
//!
//! A connection of gRPC is one task, which polls the answers of every call on it: a panic in one would end them
//! all. It must never let a panic's own words out; the process's log has them.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::server::NamedService;

use crate::error::refused;

/// A service whose calls fail where they panic.
#[derive(Clone)]
pub struct Guarded<S>(pub(crate) S);

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = AssertUnwindSafe(self.0.call(request)).catch_unwind();
        let answer = |done: std::thread::Result<Result<Response<Body>, Infallible>>| match done {
            Ok(Ok(answer)) => Ok(answer.map(|body| Body::new(GuardedBody(Some(body))))),
            Ok(Err(never)) => match never {},
            Err(_) => Ok(fault().into_http()),
        };
        call.map(answer).boxed()
    }
}

/// What a call that panicked answers: not to be tried again elsewhere, where it would do the same.
pub(crate) fn fault() -> Status {
    refused(&values::error::fault()).into()
}

/// An answer that ends with an error where it would panic; empty behind that.
struct GuardedBody(Option<Body>);

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context)));
        polled.unwrap_or_else(|_| {
            self.0 = None;
            let mut trailers = HeaderMap::new();
            let frame = fault().add_header(&mut trailers).map(|()| Frame::trailers(trailers));
            Poll::Ready(Some(frame))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics in the call if its request says so, else behind the first frame of its answer.
    #[derive(Clone)]
    struct Panics;

    struct OneFrame(bool);

    impl HttpBody for OneFrame {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            assert!(!std::mem::replace(&mut self.0, true), "a second frame");
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"rows")))))
        }
    }

    impl Service<Request<Body>> for Panics {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let at_once = request.uri().path() == "/at/once";
            async move {
                assert!(!at_once, "at once");
                Ok(Response::new(Body::new(OneFrame(false))))
            }
            .boxed()
        }
    }

    async fn answer(path: &str) -> Response<Body> {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        Guarded(Panics).call(request).await.unwrap()
    }

    async fn next(body: &mut Body) -> Option<Frame<Bytes>> {
        std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context))
            .await
            .transpose()
            .unwrap()
    }

    fn is_fault(headers: &HeaderMap) -> bool {
        let status = Status::from_header_map(headers).unwrap();
        (status.code(), status.message()) == (fault().code(), fault().message())
    }

    #[tokio::test]
    async fn a_call_that_panics_fails_with_words_of_our_own() {
        assert!(is_fault(answer("/at/once").await.headers()));
    }

    #[tokio::test]
    async fn an_answer_that_panics_ends_with_an_error() {
        let mut body = answer("/later").await.into_body();
        assert_eq!(next(&mut body).await.unwrap().into_data().unwrap(), "rows");
        assert!(is_fault(next(&mut body).await.unwrap().trailers_ref().unwrap()));
        assert!(next(&mut body).await.is_none());
    }
}
