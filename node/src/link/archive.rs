//! A file, or a directory with all that is in it, on its way to another machine: an archive that a `tar` writes on
//! the one side, and a command reads on the other.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags};

use super::channel::{Channel, PIECE};
use super::error::LinkError;
use super::frame::{busy, read_header, read_payload, record, Kind};
use super::handshake;
use super::request::{decode_failure, encode_archive, encode_failure};
use crate::streams::origin::Failure;
use crate::sys::pipe::widen;

/// How long the other side may take nothing. A command that writes to a slow disk waits.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long the sender may say nothing at all.
const QUIET: Duration = Duration::from_secs(20);
/// A sender that has nothing to send says so, in milliseconds.
const SILENCE: u16 = 5000;
/// How long the connection is tried again.
const TRIES: Duration = Duration::from_secs(5);
/// The most bytes that are kept of the errors of `tar`.
const SAID: u64 = 2000;

/// Why an archive was not sent to its end.
enum Interruption {
    Failure(String),
    /// The reader is gone, or takes nothing.
    Unread,
}

/// Sends the archive of a file or directory, and how it has ended.
///
/// # Arguments
/// * `shared` - the directories whose files other machines may have
pub fn serve(shared: &[PathBuf], mut channel: Channel, path: &Path) {
    let last = match send(shared, &mut channel, path) {
        Ok(size) => record(Kind::Committed, &size.to_be_bytes()),
        Err(Interruption::Failure(message)) => record(Kind::Failed, &encode_failure(&Failure::Producer(message))),
        Err(Interruption::Unread) => return,
    };
    let _ = channel.within(PATIENCE).write_all(&last);
}

fn send(shared: &[PathBuf], channel: &mut Channel, path: &Path) -> Result<u64, Interruption> {
    let failure = |message: String| Interruption::Failure(format!("{}: {message}", path.display()));
    let real = path.canonicalize().map_err(|error| failure(error.to_string()))?;
    if !shared.iter().filter_map(|each| each.canonicalize().ok()).any(|each| real.starts_with(each)) {
        return Err(failure("it is in no work directory".into()));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failure("it has no name".into()));
    };
    let mut tar = Command::new("tar")
        .args(["chf", "-", "-C"])
        .args([parent.as_os_str(), "--".as_ref(), name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failure(format!("cannot run tar: {error}")))?;
    // Beside the archive: a `tar` that has much to say would wait for a reader.
    let saying = tar.stderr.take().map(|stream| thread::spawn(|| said(stream)));
    let size = pass_on(&mut tar, channel);
    if size.is_err() {
        let _ = tar.kill();
    }
    let status = tar.wait().map_err(|error| failure(error.to_string()))?;
    let said = saying.and_then(|saying| saying.join().ok()).unwrap_or_default();
    match size {
        Ok(_) if !status.success() => Err(failure(if said.is_empty() { format!("tar: {status}") } else { said })),
        size => size,
    }
}

/// Passes on what `tar` writes, and returns how many bytes there were.
fn pass_on(tar: &mut Child, channel: &mut Channel) -> Result<u64, Interruption> {
    let Some(mut archive) = tar.stdout.take() else { return Err(Interruption::Unread) };
    widen(&archive);
    let mut bytes = vec![0; PIECE];
    let mut sent = 0;
    loop {
        let mut descriptors = [PollFd::new(archive.as_fd(), PollFlags::POLLIN)];
        if matches!(poll(&mut descriptors, SILENCE), Ok(0)) {
            tell(channel, &record(Kind::Keepalive, b""))?;
            continue;
        }
        match archive.read(&mut bytes) {
            Ok(0) => return Ok(sent),
            Ok(count) => {
                tell(channel, &record(Kind::Data, &bytes[..count]))?;
                sent += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Interruption::Failure(error.to_string())),
        }
    }
}

fn tell(channel: &mut Channel, record: &[u8]) -> Result<(), Interruption> {
    channel.within(PATIENCE).write_all(record).map_err(|_| Interruption::Unread)
}

/// The last line that a program has said before its end.
fn said(stream: impl Read) -> String {
    let mut text = Vec::new();
    let _ = stream.take(SAID).read_to_end(&mut text);
    String::from_utf8_lossy(&text).trim().lines().last().unwrap_or_default().to_owned()
}

/// `sfio-node receive`: has a command read the archive of a file or directory of another machine, and ends as the
/// command does; 1: the archive has not come to its end.
///
/// # Arguments
/// * `address` - of the `serve` there
/// * `certificate` - the file of the certificate of the run
/// * `tls` - whether all is inside TLS, as that `serve` wants it
pub fn receive(address: &str, certificate: &Path, tls: bool, path: &Path, command: &[OsString]) -> i32 {
    match fetch(address, certificate, tls, path, command) {
        Ok(code) => code,
        Err(LinkError::Broken(message) | LinkError::Refused(message)) => {
            eprintln!("sfio-node: {address}: {message}");
            1
        }
    }
}

fn fetch(address: &str, certificate: &Path, tls: bool, path: &Path, command: &[OsString]) -> Result<i32, LinkError> {
    let address = address.parse().map_err(|_| LinkError::Refused("has to be IP:PORT".into()))?;
    let mut channel = handshake::connect_patiently(&address, certificate, tls, TRIES)?;
    channel.within(QUIET).write_all(&record(Kind::Archive, &encode_archive(path)))?;
    // The first word tells whether there is an archive: without one, the command does not begin.
    let mut word = next(&mut channel)?;
    let Some((program, words)) = command.split_first() else { return Ok(0) };
    let mut reader = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| LinkError::Refused(format!("cannot run {}: {error}", program.to_string_lossy())))?;
    let mut input = reader.stdin.take();
    let mut taken = 0;
    let ended = loop {
        match word {
            Word::Data(bytes) => {
                taken += bytes.len() as u64;
                if !hand_on(&mut input, &bytes) {
                    break Ok(()); // The exit code of the command says why.
                }
            }
            Word::End(size) if size == taken => break Ok(()),
            Word::End(size) => break Err(LinkError::Broken(format!("{taken} bytes of {size} have come"))),
        }
        word = match next(&mut channel) {
            Ok(word) => word,
            Err(error) => break Err(error),
        };
    };
    if ended.is_err() {
        let _ = reader.kill();
    }
    drop(input);
    let status = reader.wait()?;
    ended.map(|()| status.code().unwrap_or(1))
}

/// Gives bytes to the command. False: the command takes no more.
fn hand_on(input: &mut Option<ChildStdin>, bytes: &[u8]) -> bool {
    input.as_mut().is_some_and(|input| input.write_all(bytes).is_ok())
}

/// A word of the sender.
enum Word {
    Data(Vec<u8>),
    /// All has been sent: the number of bytes.
    End(u64),
}

fn next(channel: &mut Channel) -> Result<Word, LinkError> {
    loop {
        let mut from = channel.within(QUIET);
        let header = read_header(&mut from)?;
        let payload = read_payload(&mut from, header)?;
        match header.kind {
            Kind::Data => return Ok(Word::Data(payload)),
            Kind::Keepalive => {}
            Kind::Committed => {
                let size = payload.try_into().map(u64::from_be_bytes);
                return size.map(Word::End).map_err(|_| LinkError::Broken("a bad size".into()));
            }
            Kind::Failed => {
                let (_, message) = decode_failure(&payload).of_input("");
                return Err(LinkError::Refused(message));
            }
            Kind::Busy => return Err(busy(&payload)),
            other => return Err(LinkError::Broken(format!("{other:?} came instead of data"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::TcpListener;

    use crate::link::handshake::Asked;
    use crate::link::tls::certificate_file;

    /// Has `tar` read the archive of `path` into `to`; returns the exit code of `receive`, or its message.
    fn fetched(shared: &Path, path: &Path, to: &Path, tls: bool) -> Result<i32, LinkError> {
        let keys = tempfile::tempdir().unwrap();
        let certificate = certificate_file(&keys, "run");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let command: Vec<OsString> = ["tar", "xpf", "-", "-C"].iter().map(OsString::from).chain([to.into()]).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (channel, asked) = handshake::receive(listener.accept().unwrap().0, &certificate, tls).unwrap();
                let Asked::Archive(path) = asked else { panic!("{asked:?}") };
                serve(&[shared.to_owned()], channel, &path);
            });
            fetch(&address, &certificate, tls, path, &command)
        })
    }

    #[test]
    fn a_directory_comes_with_all_that_is_in_it() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let tree = from.path().join("-d e");
        fs::create_dir_all(tree.join("empty")).unwrap();
        let large: Vec<u8> = (0..3 * PIECE).map(|number| (number % 251) as u8).collect();
        fs::write(tree.join("large"), &large).unwrap();
        std::os::unix::fs::symlink("large", tree.join("link")).unwrap();
        for tls in [false, true] {
            assert_eq!(fetched(from.path(), &tree, to.path(), tls), Ok(0));
            let there = to.path().join("-d e");
            assert!(fs::read(there.join("large")).unwrap() == large);
            assert!(fs::read(there.join("link")).unwrap() == large && !there.join("link").is_symlink());
            assert!(there.join("empty").is_dir());
            fs::remove_dir_all(there).unwrap();
        }
    }

    #[test]
    fn what_is_elsewhere_or_missing_does_not_come() {
        let [from, other, to] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        fs::write(other.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(other.path().join("secret"), from.path().join("link")).unwrap();
        let paths = [other.path().join("secret"), from.path().join("link"), from.path().join("missing")];
        for (path, why) in paths.iter().zip(["no work directory", "no work directory", "No such file"]) {
            let got = fetched(from.path(), path, to.path(), false);
            assert!(matches!(&got, Err(LinkError::Refused(message)) if message.contains(why)), "{got:?}");
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_archive_without_its_end_is_an_error() {
        let keys = tempfile::tempdir().unwrap();
        let certificate = certificate_file(&keys, "run");
        for size in [None, Some(4_u64)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let got = thread::scope(|scope| {
                scope.spawn(|| {
                    let accepted = handshake::receive(listener.accept().unwrap().0, &certificate, false);
                    let (mut channel, _) = accepted.unwrap();
                    let end = size.map(|size| record(Kind::Committed, &size.to_be_bytes())).unwrap_or_default();
                    channel.stream().write_all(&[record(Kind::Data, b"abc"), end].concat()).unwrap();
                });
                fetch(&address, &certificate, false, Path::new("/a"), &["cat".into()])
            });
            assert!(matches!(got, Err(LinkError::Broken(_))), "{got:?}");
        }
    }
}
