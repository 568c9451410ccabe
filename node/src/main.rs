//! sfio-node: the node runtime of StreamFlow-IO. The contract with the driver is `docs/node-protocol.md`.

mod cut;
mod exec;
mod gate;
mod host;
mod inputs;
mod limits;
mod link;
mod outputs;
mod processes;
mod protocol;
mod streams;
mod sys;
mod tools;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{value_parser, Parser};

use self::host::{read, run, serve};
use self::processes::usage::Spent;
use self::processes::watchdog;
use self::protocol::{liveness, verify};
use self::sys::{memory, raw};
use self::tools::{excerpt, identity, programs, refused, unlike};

/// The number of the protocol is raised, here and in `streamflow_io/runtime/build.py`, by each change of it that a driver,
/// as it was before, would not understand.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " protocol 8");

/// The node runtime of StreamFlow-IO
#[derive(Parser)]
#[command(name = "sfio-node", version = VERSION)]
enum Command {
    /// Serve the jobs of one driver: pass on what happens in them, and end them with the driver
    Serve {
        /// The run directory, which must not exist; it is removed in the end
        #[arg(long, value_name = "PATH")]
        directory: PathBuf,
        /// The jobs are on other machines, which share DIRECTORY
        #[arg(long)]
        shared: bool,
        /// Stream to other machines, from this address [default: the one under which SSH has reached this machine]
        #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "")]
        listen: Option<String>,
        /// Encrypt what streams to other machines
        #[arg(long, requires = "listen")]
        tls: bool,
        /// How long the driver may say nothing before this is the end [default: until the standard input ends]
        #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..))]
        patience: Option<u64>,
        /// Let other users read the events of jobs, if they know where these are
        #[arg(long)]
        readable: bool,
        /// A user, besides root and this one, who may own a directory above DIRECTORY
        #[arg(long, value_name = "UID")]
        trust: Vec<u32>,
        /// A mount whose users are all trusted, whatever its mode, and what it is mounted on, would let others do
        #[arg(long, value_name = "MOUNT")]
        within: Vec<PathBuf>,
    },
    /// End what is left of jobs whose serve and exec were killed, and remove their run directory: exit code 1 if one of these
    /// lives on
    Clear {
        /// The run directory
        #[arg(long, value_name = "PATH")]
        directory: PathBuf,
    },
    /// Try whether a serve with the certificate of the run answers at an address, or whether one lives on this kernel
    Reach {
        /// Where it listens
        #[arg(value_name = "IP:PORT", requires = "certificate", required_unless_present = "run")]
        address: Option<String>,
        /// The file with the certificate of the run, beside which its private key lies
        #[arg(long, value_name = "PATH", requires = "address")]
        certificate: Option<PathBuf>,
        /// The run directory of a serve on this kernel, as it is seen from here
        #[arg(long, value_name = "PATH", conflicts_with = "address")]
        run: Option<PathBuf>,
    },
    /// Look whether a file begins with the bytes that a job has read of it: exit code 0, or 1 if not
    Compare {
        /// The file
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
        /// The part of the event of the stream
        #[arg(long, value_name = "JSON")]
        part: String,
    },
    /// Say where a rule cuts a file into parts, one line of JSON for each, or compare with parts that are there: exit code 1 if
    /// something is different
    Cut {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// Records, how many are a part, and what parts are called
        #[arg(long, value_name = "JSON")]
        rule: String,
        /// The directory of the parts
        #[arg(long, value_name = "DIRECTORY")]
        compare: Option<PathBuf>,
    },
    /// Say which lines of two files differ, of text and of what bgzip has made of it: exit code 1 if something else does
    Unlike {
        /// The one file
        #[arg(long, value_name = "PATH")]
        one: PathBuf,
        /// The other file
        #[arg(long, value_name = "PATH")]
        other: PathBuf,
    },
    /// Say by which rule a split may have cut a file into parts that are there: exit code 1 if there is none
    Propose {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// The directory of the parts
        #[arg(long, value_name = "DIRECTORY")]
        directory: PathBuf,
        /// What parts are called, with one %d for the number
        #[arg(long, value_name = "NAMES")]
        names: OsString,
        /// The number of the first
        #[arg(long, value_name = "NUMBER")]
        first: u64,
        /// How many there are
        #[arg(long, value_name = "NUMBER")]
        count: u64,
    },
    /// Say the real path of a file, and what tells it from others: exit code 1 if it is not there, or not the one that is asked for
    Identity {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// What it is to be
        #[arg(long, value_name = "JSON")]
        is: Option<String>,
    },
    /// Say what tells programs from others of the same name, one line of JSON for each, or a dash if there is none
    Programs {
        /// Names, which are looked for in PATH, or paths
        #[arg(value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Make a file of the first bytes of another one, which ends where a line ends, and say how many they are
    Excerpt {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// The new one
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        /// The most that it may have
        #[arg(long, value_name = "NUMBER")]
        bytes: u64,
    },
    /// Say which system calls are refused here, as in many containers: one name in a line
    Refused,
    /// Say how much memory there is here
    Memory,
    /// Run a command as a job, and end as it ends
    Exec {
        /// The directory of the job, with job.json
        #[arg(long, value_name = "PATH")]
        job: PathBuf,
        #[arg(long, hide = true, default_value_t = 0)]
        grace: u64,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// Bring parts of a file into the page cache, before jobs read them
    Read {
        /// The directory of the session, with session.json
        #[arg(long, value_name = "PATH")]
        job: PathBuf,
    },
    /// Run a command as a job on a machine that shares the run directory, and end as it ends
    Run {
        /// The directory of the job, with job.json
        #[arg(long, value_name = "PATH")]
        job: PathBuf,
        /// How long the driver may give no sign of life before the job is cancelled
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..))]
        patience: u64,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// What exec starts where a command has gates or byte streams, or is observed
    #[command(hide = true)]
    Launch {
        #[arg(long)]
        socket: i32,
        #[command(flatten)]
        purpose: gate::Purpose,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// What exec starts when processes outlive a job that had gates, or was observed
    #[command(hide = true)]
    PassThrough,
    /// What exec starts for a job that it may pause
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        job: PathBuf,
    },
}

fn main() -> ExitCode {
    let spent = Spent::by_now();
    let command = Command::parse();
    // What jobs do must not change what is told of them.
    let tells =
        matches!(command, Command::Serve { .. } | Command::Exec { .. } | Command::Run { .. } | Command::Read { .. });
    raw::shield(tells);
    let code = match command {
        Command::Serve { directory, shared, listen, tls, patience, readable, trust, within } => {
            let (listen, trusted, within) = (listen.as_deref(), trust.as_slice(), within.as_slice());
            let patience = patience.map(Duration::from_secs);
            serve::run(&directory, serve::Options { shared, listen, tls, patience, readable, trusted, within })
        }
        Command::Clear { directory } => serve::clear(&directory),
        Command::Reach { run: Some(run), .. } => liveness::reach(&run),
        Command::Reach { address, certificate, .. } => {
            link::reach(&address.unwrap_or_default(), &certificate.unwrap_or_default())
        }
        Command::Compare { file, part } => verify::compare(&file, &part),
        Command::Cut { of, rule, compare } => cut::run(&of, &rule, compare.as_deref()),
        Command::Propose { of, directory, names, first, count } => cut::propose(&of, &directory, &names, first, count),
        Command::Unlike { one, other } => unlike::run(&one, &other),
        Command::Programs { words } => programs::run(&words),
        Command::Identity { of, is } => identity::run(&of, is.as_deref()),
        Command::Excerpt { of, to, bytes } => excerpt::run(&of, &to, bytes),
        Command::Refused => refused::run(),
        Command::Memory => memory::run(),
        Command::Exec { job, grace, command } => exec::run(&job, &command, Duration::from_millis(grace), spent),
        Command::Read { job } => read::run(&job),
        Command::Run { job, patience, command } => run::run(&job, &command, Duration::from_secs(patience)),
        Command::Launch { socket, purpose, command } => gate::launch(socket, purpose, &command),
        Command::PassThrough => gate::pass_through(),
        Command::Guard { job } => watchdog::run(&job),
    };
    // Codes are those of a process, which has only these.
    ExitCode::from((code & 0xFF) as u8)
}
