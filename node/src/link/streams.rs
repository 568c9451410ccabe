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

/// How long a connection waits at once for the end of the one that it replaces.
const LOOK: Duration = Duration::from_secs(1);
/// A reader that did not come again after so long has given up.
const FORGET_AFTER: Duration = Duration::from_secs(120);

enum Held {
    /// The newest connection. A former one may still have to end.
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
    /// stream gives None. The former connection may take long to end, because its file is compared.
    ///
    /// # Arguments
    /// * `stay` - is called now and then during the wait
    ///
    /// # Errors
    /// That of `stay`, which has to find that `connection` is shut down: a still newer one has come.
    pub fn take(
        &self,
        wanted: &Wanted,
        connection: TcpStream,
        mut stay: impl FnMut() -> nix::Result<()>,
    ) -> io::Result<Option<Source>> {
        let mut held = lock(&self.held);
        if let Some(Held::By(newest)) = held.get_mut(wanted) {
            let _ = newest.shutdown(Shutdown::Both);
            *newest = connection.try_clone()?;
        }
        while matches!(held.get(wanted), Some(Held::By(_))) {
            held = self.returned.wait_timeout(held, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            stay()?;
        }
        match held.insert(wanted.clone(), Held::By(connection)) {
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
    use crate::streams::producer::Producer;
    use std::io::ErrorKind::WouldBlock;
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::mpsc;
    use std::thread;

    use nix::errno::Errno;

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (reader, listener.accept().unwrap().0)
    }

    fn source() -> Source {
        Source::new(Path::new("/a"), Producer::of_file("p", Path::new("/a"), "/events".into()))
    }

    #[test]
    fn the_newest_connection_waits_as_long_as_it_takes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = Wanted::of_test();
        let streams = Streams::default();
        let [(_one, first), (_two, second), (_three, third)] = [(); 3].map(|()| connection(&listener));
        let is_open = |socket: &TcpStream| matches!(socket.peek(&mut [0]), Err(error) if error.kind() == WouldBlock);
        second.set_nonblocking(true).unwrap();
        let (waits, waited) = mpsc::channel();
        streams.take(&wanted, first, || Ok(())).unwrap();
        thread::scope(|scope| {
            let (streams, wanted, waits_too) = (&streams, &wanted, waits.clone());
            let former = scope.spawn(move || {
                streams.take(wanted, second.try_clone().unwrap(), || {
                    waits_too.send(2).unwrap();
                    is_open(&second).then_some(()).ok_or(Errno::EPIPE)
                })
            });
            assert_eq!(waited.recv(), Ok(2));
            let newest = scope.spawn(move || {
                streams.take(wanted, third, || {
                    waits.send(3).unwrap();
                    Ok(())
                })
            });
            assert!(former.join().unwrap().is_err(), "there is a newer one");
            while waited.recv() != Ok(3) {}
            streams.give_back(wanted, Some(source()));
            assert!(newest.join().unwrap().unwrap().is_some());
        });
    }
}
