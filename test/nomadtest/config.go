package nomadtest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// writeConfigs writes the configurations of server and client as JSON, in which every path can be
// quoted.
func (n *Nomad) writeConfigs() error {
	ports := n.slot.ports
	server := n.config("server", ports.server)
	// With the default of 5 the first election takes 17 s.
	server["server"] = object{"enabled": true, "bootstrap_expect": 1, "raft_multiplier": 1}
	return errors.Join(n.write("server.json", server), n.writeClient("client", ports.client), n.writeClient("second", ports.second))
}

// writeClient writes the configuration of the client with this name.
func (n *Nomad) writeClient(name string, at agentPorts) error {
	ports := n.slot.ports
	client := n.config(name, at)
	// Fingerprints of clouds send requests to addresses that don't answer.
	denied := "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
	if len(n.options.Networks) == 0 {
		denied += ",cni"
	}
	client["client"] = object{
		"cni_path":          "/usr/lib/cni",
		"cni_config_dir":    n.path("cni"),
		"enabled":           true,
		"servers":           []string{address(ports.server.rpc)},
		"network_interface": "lo",
		"min_dynamic_port":  ports.first,
		"max_dynamic_port":  ports.last,
		"options": object{
			"driver.allowlist":     strings.Join(n.options.Drivers, ","),
			"fingerprint.denylist": denied,
		},
		// The default copies most of the machine into each task, which takes 20 s.
		"chroot_env": object{n.root(): "/"},
	}
	client["plugin"] = []object{
		{"raw_exec": object{"config": object{"enabled": true}}},
		{"docker": object{"config": object{
			"endpoint": n.dockerHost(),
			"volumes":  object{"enabled": n.options.Volumes},
			// The image exists from the start, and stays.
			"gc":          object{"image": false},
			"infra_image": pauseImage,
		}}},
	}
	return n.write(name+".json", client)
}

// writeNetworks writes the CNI configurations.
func (n *Nomad) writeNetworks() error {
	if err := os.Mkdir(n.path("cni"), 0o700); err != nil {
		return err
	}
	for name, text := range n.options.Networks {
		if err := os.WriteFile(filepath.Join(n.path("cni"), name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// config returns the settings that server and client share.
func (n *Nomad) config(name string, ports agentPorts) object {
	loopback := "127.0.0.1"
	config := object{
		"name":                 name,
		"data_dir":             n.path(name),
		"bind_addr":            loopback,
		"advertise":            object{"http": loopback, "rpc": loopback, "serf": loopback},
		"ports":                object{"http": ports.http, "rpc": ports.rpc, "serf": ports.serf},
		"log_level":            "INFO",
		"disable_update_check": true,
		"acl":                  object{"enabled": n.options.ACL, "token_ttl": "1s", "policy_ttl": "1s"},
		"limits":               object{"http_max_conns_per_client": n.options.Connections, "rpc_max_conns_per_client": n.options.Connections},
	}
	if n.files != nil {
		config["tls"] = object{
			"http": true, "rpc": true, "verify_server_hostname": true, "verify_https_client": true,
			"ca_file": n.files.ca, "cert_file": n.files.serverCert, "key_file": n.files.serverKey,
		}
	}
	return config
}

// write writes a configuration to a file in this Nomad's directory.
func (n *Nomad) write(name string, config object) error {
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(n.path(name), text, 0o600)
}
