# What Rockpool may do on Nomad, and nothing else.
namespace "default" {
  # alloc-node-exec is for the driver raw_exec only; alloc-lifecycle for a signal that does nothing
  # to a task whose beginning Nomad's client has missed (docs/decisions/0022).
  capabilities = ["list-jobs", "read-job", "submit-job", "alloc-exec", "alloc-node-exec", "alloc-lifecycle"]

  # Claims, and which server is the one that works, for every --nomad-prefix that begins so.
  variables {
    path "rockpool*" {
      capabilities = ["list", "read", "write", "destroy"]
    }
  }
}

# Which nodes are drained, or take no new runners.
node {
  policy = "read"
}

# Optional: with it `rockpool doctor` sees how many connections Nomad takes of one address.
agent {
  policy = "read"
}
