//! The quality of service of a pod, which follows from what its containers ask for and may use
//! (Kubernetes documentation, "Pod Quality of Service Classes").

use serde_json::Value;

use super::quantity;

const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn quality(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let lists = [&spec["initContainers"], &spec["containers"]];
    let containers: Vec<&Value> = lists.into_iter().filter_map(Value::as_array).flatten().collect();
    // A limit without a request is a request as well.
    let asks = |container: &Value, resource: &str| {
        let resources = &container["resources"];
        let amount = |what: &str| resources[what][resource].as_str().and_then(quantity::parse).filter(|n| *n > 0.0);
        (amount("requests").or_else(|| amount("limits")), amount("limits"))
    };
    let amounts = |container| RESOURCES.map(|resource| asks(container, resource));
    let none = |(request, limit): &(Option<f64>, Option<f64>)| request.is_none() && limit.is_none();
    let equal = |(request, limit): &(Option<f64>, Option<f64>)| limit.is_some() && request == limit;
    if containers.iter().all(|container| amounts(container).iter().all(none)) {
        "BestEffort"
    } else if containers.iter().all(|container| amounts(container).iter().all(equal)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_that_are_the_limits_are_guaranteed_and_none_at_all_are_best_effort() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({"limits": both}), "Guaranteed"),
            (json!({"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}), "Guaranteed"),
            (json!({"limits": both, "requests": {"cpu": "500m"}}), "Burstable"),
            (json!({"requests": {"cpu": "500m"}}), "Burstable"),
        ] {
            let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
            assert_eq!(quality(&pod), expected, "{pod}");
        }
    }
}
