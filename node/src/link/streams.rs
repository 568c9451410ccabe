//! Streams whose readers have not seen the end. The bytes that were sent are known, so that another connection can go
//! on.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::request::Wanted;
use crate::streams::source::Source;
use crate::sys::threads::lock;

/// How long the end of a connection may take that another one replaces.
const HANDOVER: Duration = Duration::from_secs(10);
/// A reader that did not come again after so long has given up.
const FORGET_AFTER: Duration = Duration::from_secs(120);

enum Held {
    By(TcpStream),
    Left(Box<Source>, Instant),
}

#[derive(Default)]
pub struct Streams {
    held: Mutex<HashMap<Wanted, Held>>,
    returned: Condvar,
}

impl Streams {
    /// Takes a stream for `connection`, from a former connection if the reader knows that one to be broken. A new
    /// stream gives None.
    ///
    /// # Errors
    /// When the former connection does not end.
    pub fn take(&self, wanted: &Wanted, connection: &TcpStream) -> io::Result<Option<Source>> {
        let held = lock(&self.held);
        if let Some(Held::By(former)) = held.get(wanted) {
            let _ = former.shutdown(Shutdown::Both);
        }
        let is_held = |held: &mut HashMap<Wanted, Held>| matches!(held.get(wanted), Some(Held::By(_)));
        let waited = self.returned.wait_timeout_while(held, HANDOVER, is_held);
        let (mut held, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match held.insert(wanted.clone(), Held::By(connection.try_clone()?)) {
            Some(Held::Left(source, _)) => Ok(Some(*source)),
            _ => Ok(None),
        }
    }

    /// Gives back what was taken; None: the reader has seen the end.
    pub fn give_back(&self, wanted: &Wanted, source: Option<Source>) {
        let mut held = lock(&self.held);
        match source {
            Some(source) => held.insert(wanted.clone(), Held::Left(Box::new(source), Instant::now())),
            None => held.remove(wanted),
        };
        self.returned.notify_all();
    }

    /// Forgets streams whose reader did not come again.
    pub fn forget_abandoned(&self) {
        lock(&self.held).retain(|_, held| !matches!(held, Held::Left(_, since) if since.elapsed() > FORGET_AFTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::verify::Verify;
    use crate::streams::producer::Producer;
    use std::io::Read;
    use std::net::TcpListener;
    use std::path::Path;
    use std::thread;

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (reader, listener.accept().unwrap().0)
    }

    #[test]
    fn a_stream_is_taken_from_a_former_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = Wanted::of_test();
        let streams = Streams::default();
        let [(_one, first), (_two, second), (_three, third)] = [(); 3].map(|()| connection(&listener));
        assert!(streams.take(&wanted, &first).unwrap().is_none());
        thread::scope(|scope| {
            scope.spawn(|| {
                // Its connection is shut down.
                assert_eq!((&first).read(&mut [0]).unwrap(), 0);
                let producer = Producer::of_file("p", Path::new("/a"), "/events".into());
                streams.give_back(&wanted, Some(Source::new(Path::new("/a"), producer, Verify::Full)));
            });
            assert!(streams.take(&wanted, &second).unwrap().is_some());
        });
        streams.give_back(&wanted, None);
        assert!(streams.take(&wanted, &third).unwrap().is_none());
        streams.forget_abandoned();
        assert_eq!(lock(&streams.held).len(), 1, "who is here has not gone");
    }
}
