//! sfio-node: the node runtime of StreamFlow-IO. The contract with the driver is `docs/node-protocol.md`.

mod commit;
mod event;
mod exec;
mod exit;
mod fd_store;
mod feed;
mod follow;
mod fresh;
mod gate;
mod hold;
mod io_time;
mod job;
mod json;
mod link;
mod lives;
mod observe;
mod origin;
mod outputs;
mod ownership;
mod pattern;
mod pipe;
mod producer;
mod program;
mod rights;
mod run;
mod serve;
mod signals;
mod source;
mod stamp;
mod supervise;
mod sys;
mod tree;
mod usage;
mod verify;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};

fn interface() -> Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("PATH").required(true).value_parser(value_parser!(PathBuf)).help(help)
    };
    let words = || Arg::new("command").last(true).required(true).num_args(1..).value_parser(value_parser!(OsString));
    let socket = Arg::new("socket").long("socket").required(true).value_parser(value_parser!(i32));
    let listen =
        Arg::new("listen").long("listen").value_name("ADDRESS").num_args(0..=1).default_missing_value("").help(
            "Stream to other machines, from this address [default: the one under which SSH has reached this machine]",
        );
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new("sfio-node")
        .about("The node runtime of StreamFlow-IO")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .subcommand(
            Command::new("serve")
                .about("Serve the jobs of one driver: pass on what happens in them, and end them with the driver")
                .arg(path("directory", "The run directory, which must not exist; it is removed in the end"))
                .arg(
                    switch("remote")
                        .help("The driver is on another machine: end with DIRECTORY/end, or with who reads"),
                )
                .arg(switch("shared").requires("remote").help("The jobs are on other machines, which share DIRECTORY"))
                .arg(listen)
                .arg(switch("tls").requires("listen").help("Stream to other machines inside TLS only")),
        )
        .subcommand(
            Command::new("reach")
                .about("Try whether a serve that knows the key answers at an address")
                .arg(Arg::new("address").required(true).value_name("IP:PORT").help("Where it listens"))
                .arg(path("key", "The file with the key of the run"))
                .arg(switch("tls").help("Speak TLS, with the certificate beside the key")),
        )
        .subcommand(
            Command::new("compare")
                .about("Look whether a file begins with the bytes that a job has read of it: exit code 0, or 1 if not")
                .arg(path("file", "The file"))
                .arg(
                    Arg::new("part")
                        .long("part")
                        .value_name("JSON")
                        .required(true)
                        .help("The part of the event of the stream"),
                ),
        )
        .subcommand(
            Command::new("exec")
                .about("Run a command as a job, and end as it ends")
                .arg(path("job", "The directory of the job, with job.json"))
                .arg(Arg::new("grace").long("grace").hide(true).value_parser(value_parser!(u64)).default_value("0"))
                .arg(words()),
        )
        .subcommand(
            Command::new("run")
                .about("Run a command as a job on a machine that shares the run directory, and end as it ends")
                .arg(path("job", "The directory of the job, with job.json"))
                .arg(
                    Arg::new("patience")
                        .long("patience")
                        .value_name("SECONDS")
                        .value_parser(value_parser!(u64).range(1..))
                        .default_value("60")
                        .help("How long the driver may give no sign of life before the job is cancelled"),
                )
                .arg(words()),
        )
        .subcommand(
            Command::new("enter")
                .hide(true)
                .about("What exec starts where a command has gates or byte streams, or is observed")
                .args([socket, switch("hold"), switch("streams"), switch("observe"), words()]),
        )
        .subcommand(
            Command::new("attend")
                .hide(true)
                .about("What exec starts when processes outlive a job that had gates, or was observed"),
        )
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

fn main() -> ExitCode {
    let path = |matches: &ArgMatches, name: &str| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
    let words = |matches: &ArgMatches| -> Vec<OsString> {
        matches.get_many("command").into_iter().flatten().cloned().collect()
    };
    let matches = interface().get_matches();
    // What jobs do must not change what is told of them.
    sys::shield(matches!(matches.subcommand_name(), Some("serve" | "exec" | "run")));
    let code = match matches.subcommand() {
        Some(("serve", matches)) => {
            let options = serve::Options {
                remote: matches.get_flag("remote"),
                shared: matches.get_flag("shared"),
                listen: text(matches, "listen"),
                tls: matches.get_flag("tls"),
            };
            serve::run(&path(matches, "directory"), options)
        }
        Some(("reach", matches)) => {
            let address = text(matches, "address").unwrap_or_default();
            link::reach(address, &path(matches, "key"), matches.get_flag("tls"))
        }
        Some(("compare", matches)) => {
            verify::compare(&path(matches, "file"), text(matches, "part").unwrap_or_default())
        }
        Some(("run", matches)) => {
            let patience = Duration::from_secs(matches.get_one("patience").copied().unwrap_or(60));
            run::run(&path(matches, "job"), &words(matches), patience)
        }
        Some(("enter", matches)) => {
            let socket = matches.get_one("socket").copied().unwrap_or(-1);
            let [holds, streams, observes] = ["hold", "streams", "observe"].map(|name| matches.get_flag(name));
            let purpose = gate::Purpose { holds, streams, observes };
            gate::enter(socket, purpose, &words(matches))
        }
        Some(("attend", _)) => gate::attend(),
        Some((_, matches)) => {
            let grace = Duration::from_millis(matches.get_one("grace").copied().unwrap_or(0));
            exec::run(&path(matches, "job"), &words(matches), grace)
        }
        None => 2,
    };
    // Codes are those of a process, which has only these.
    ExitCode::from((code & 0xFF) as u8)
}
