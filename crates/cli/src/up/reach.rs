//! Whether the address that `up` is about to hand out leads to a database: a Ready that was written before the plane was
//! stopped, or a stranger on the port, is nothing to connect to.

use crate::connection::Connection;
use crate::database;
use coregent_api::conditions::{self, find};
use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server on this machine answers at once; one that is busy is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// SSLRequest (PostgreSQL's protocol, «Message Formats»): any server answers it with one letter, whoever asks.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Whether the read-write address of the cluster is served and a server answers there; else why not.
pub async fn read_write(connection: &Connection, name: &str) -> Result<(), String> {
    let services: Api<Service> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let service = services.get_opt(name).await.map_err(|error| error.to_string())?;
    let said = service.and_then(|service| service.status).and_then(|status| status.conditions).unwrap_or_default();
    if let Some(served) = find(&said, conditions::SERVED).filter(|served| served.status == "False") {
        return Err(format!("Service {name}: {}", served.message));
    }
    let address = database::service_address(connection, name, false).await.map_err(|failure| failure.why)?;
    match tokio::time::timeout(ANSWERS_WITHIN, answers(&address)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("no PostgreSQL answers at {address}: {error}")),
        Err(_) => Err(format!("no PostgreSQL answers at {address} within {} s", ANSWERS_WITHIN.as_secs())),
    }
}

async fn answers(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&SSL_REQUEST).await?;
    match stream.read_u8().await? {
        b'S' | b'N' => Ok(()),
        other => Err(std::io::Error::other(format!("what listens there says {:?}", char::from(other)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn only_what_speaks_postgresql_counts_as_an_answer() {
        for (says, expected) in [(b"N", true), (b"S", true), (b"H", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 8];
                stream.read_exact(&mut asked).await.unwrap();
                assert_eq!(asked, SSL_REQUEST);
                stream.write_all(says).await.unwrap();
            };
            let (answer, ()) = tokio::join!(answers(&address), server);
            assert_eq!(answer.is_ok(), expected, "{says:?}");
        }
    }
}
