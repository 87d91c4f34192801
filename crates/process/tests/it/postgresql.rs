//! The program that containers are for.

use std::path::PathBuf;

use coregent_process::{ExecSpec, ExitStatus};
use tokio::io::AsyncReadExt;

use crate::fixture::{Script, open_folder, run, soon};
use crate::harness::Outcome;

crate::tests![a_stock_server_initialises_serves_and_dies_as_a_whole];

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions.map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists())
}

fn a_stock_server_initialises_serves_and_dies_as_a_whole() -> Outcome {
    let Some(programs) = programs() else { return Outcome::Skipped("PostgreSQL is not installed") };
    let volume = open_folder();
    let container = |script: &str| {
        let mut script = Script::new(script).mount(volume.path(), "/var/lib/postgresql/data", false);
        script.spec.env = vec![
            ("PATH".to_owned(), format!("{}:/usr/bin:/bin", programs.display())),
            ("PGDATA".to_owned(), "/var/lib/postgresql/data/pgdata".to_owned()),
        ];
        script
    };
    run(async {
        let (status, log) = container("initdb -A trust -N").finish().await;
        assert_eq!(status, ExitStatus::Exited(0), "{log}");
        let server = "exec postgres -c listen_addresses= -c unix_socket_directories=/run";
        // Twice: the second finds what the killed first one left, under the same process id.
        for round in 1..=2 {
            let (server, log) = container(&format!("rm -f $PGDATA/postmaster.pid; {server}")).start().await;
            log.wait_for("database system is ready to accept connections").await;
            let query = format!("create table t{round} (i int); select current_user, pg_backend_pid() > 1");
            let argv = ["psql", "-h", "/run", "-Atqc", &query, "postgres"].map(str::to_owned).to_vec();
            let mut psql = server.exec(ExecSpec { argv, ..ExecSpec::default() }).await.unwrap();
            let mut output = String::new();
            psql.stdout.take().unwrap().read_to_string(&mut output).await.unwrap();
            assert_eq!((psql.wait().await, output.as_str()), (ExitStatus::Exited(0), "postgres|t\n"));
            server.kill();
            assert_eq!(soon("end", server.wait()).await, ExitStatus::Signaled(9));
        }
    });
    Outcome::Passed
}
