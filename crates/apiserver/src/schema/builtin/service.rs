//! Rules of Services and EndpointSlices.

use std::collections::BTreeSet;

use serde_json::json;

use super::at::At;
use super::{container, metadata, names};
use crate::schema::FieldError;

/// The rules of a Service.
pub fn validate(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    let kind = spec.get("type");
    kind.must_be_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    spec.get("sessionAffinity").must_be_one_of(&["ClientIP", "None"], errors);
    let policies = ["Cluster", "Local"];
    spec.get("internalTrafficPolicy").must_be_one_of(&policies, errors);
    spec.get("externalTrafficPolicy").must_be_one_of(&policies, errors);
    metadata::check_labels(&spec.get("selector"), errors);
    let external = kind.text() == "ExternalName";
    if external {
        let name = spec.get("externalName");
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else {
            errors.extend(names::subdomain(name.text().trim_end_matches('.')).iter().map(|fault| name.invalid(fault)));
        }
    }
    let ports = spec.get("ports");
    if ports.items().is_empty() && !external && spec.get("clusterIP").text() != "None" {
        errors.push(ports.required(""));
    }
    check_ports(&ports, errors);
    let address = spec.get("clusterIP");
    if !matches!(address.text(), "" | "None") && address.text().parse::<std::net::IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &address.text().into(), detail));
    }
    check_address_stays(&spec, &was.get("spec"), errors);
}

/// Once a Service has an address, it keeps it, unless it becomes a mere name.
fn check_address_stays(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let named = |spec: &At<'_>| spec.get("type").text() == "ExternalName";
    let before = was.get("clusterIP").text();
    if before.is_empty() || named(was) || named(new) {
        return;
    }
    if new.get("clusterIP").text() != before {
        let now = json!([new.get("clusterIP").text()]);
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &now, "may not change once set"));
    }
}

fn check_ports(ports: &At<'_>, errors: &mut Vec<FieldError>) {
    let items = ports.items();
    let (mut seen, mut names_seen) = (BTreeSet::new(), BTreeSet::new());
    for port in &items {
        let name = port.get("name");
        if name.text().is_empty() {
            if items.len() > 1 {
                errors.push(name.required(""));
            }
        } else {
            errors.extend(names::label(name.text()).iter().map(|fault| name.invalid(fault)));
            if !names_seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        let number = port.get("port");
        let value = number.int().unwrap_or_default();
        errors.extend(
            names::port_number(value).iter().map(|fault| FieldError::invalid(&number.path, &value.into(), fault)),
        );
        let protocol = port.get("protocol");
        protocol.must_be_one_of(&["SCTP", "TCP", "UDP"], errors);
        if port.get("targetPort").is_there() {
            container::check_target(&port.get("targetPort"), errors);
        }
        let key = (value, if protocol.is_there() { protocol.text() } else { "TCP" });
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(&port.path, &json!({"port": key.0, "protocol": key.1})));
        }
    }
}

/// The rules of an EndpointSlice.
pub fn validate_slice(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let ty = new.get("addressType");
    if ty.text().is_empty() {
        errors.push(ty.required(""));
    }
    ty.must_be_one_of(&["FQDN", "IPv4", "IPv6"], errors);
    for endpoint in new.get("endpoints").items() {
        let addresses = endpoint.get("addresses");
        if addresses.items().is_empty() {
            errors.push(addresses.required("must contain at least 1 address"));
        }
        for address in addresses.items() {
            let right = match ty.text() {
                "IPv4" => address.text().parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => address.text().parse::<std::net::Ipv6Addr>().is_ok(),
                _ => names::subdomain(address.text()).is_empty(),
            };
            if !right {
                errors.push(address.invalid(&format!("must be a valid {} address", ty.text())));
            }
        }
    }
    if was.is_there() {
        ty.must_not_change(&was.get("addressType"), errors);
    }
}
