package attack

// networks returns attacks of runners without network access. The addresses are mostly those
// reserved for documentation, where no machine would get a packet that gets through.
func networks() []Attack {
	var all []Attack
	const unreachable = "E(NETUNREACH|HOSTUNREACH|PERM|ACCES|AFNOSUPPORT|ADDRNOTAVAIL)"
	for _, row := range []struct{ name, tries, network, address string }{
		{"the public network", "to reach a machine on the Internet", "tcp", "192.0.2.1:80"},
		{"the public network, IPv6", "to reach a machine on the Internet over IPv6", "tcp", "[2001:db8::1]:80"},
		{"a cloud's metadata", "to get the machine's credentials from the cloud's metadata service", "tcp", "169.254.169.254:80"},
		{"a cloud's metadata, IPv6", "to get the machine's credentials from the cloud's metadata service over IPv6", "tcp", "[fd00:ec2::254]:80"},
		{"the local network", "to reach another machine in the local network", "tcp", "192.168.0.1:80"},
		{"another local network", "to reach a machine in a large private network", "tcp", "10.0.0.1:443"},
		{"a container host", "to reach the machine at the usual address of a container host", "tcp", "172.17.0.1:80"},
		{"a name server", "to query a name server, or to tunnel data through it", "udp", "192.0.2.53:53"},
		{"broadcast", "to send a broadcast", "udp", "255.255.255.255:9"},
		{"a multicast group", "to discover services by multicast", "udp", "224.0.0.251:5353"},
	} {
		all = append(all, Attack{
			Name: row.name, Class: Network, Defence: OwnNetwork, Tries: row.tries, Gentle: true,
			Steps: []Step{probe("connect", row.network, row.address), probe("connect", row.network, row.address).asRoot()},
			Held:  "^" + row.network + " \\S+ " + unreachable + "\n=> EXITED 0\n" + row.network + " \\S+ " + unreachable + "\n=> EXITED 0",
		})
	}
	return append(all,
		Attack{
			Name: "the machine's loopback", Class: Network, Defence: OwnNetwork, Tries: "to reach services on the machine's loopback, such as this server",
			Steps: []Step{probe("connect", "tcp", "127.0.0.1:{port}"), probe("connect", "tcp", "[::1]:{port}"), probe("connect", "tcp", "0.0.0.0:{port}")},
			Held:  "^(tcp \\S+ E(CONNREFUSED|ADDRNOTAVAIL|NETUNREACH)\n=> EXITED 0\n){3}",
		},
		Attack{
			Name: "the machine's abstract sockets", Class: Network, Defence: OwnNetwork, Tries: "to reach a program on the machine through an abstract socket",
			Steps: []Step{probe("abstract", "connect", "{abstract}")}, Held: "^abstract ECONNREFUSED\n=> EXITED 0",
		},
		Attack{
			Name: "interfaces", Class: Network, Defence: OwnNetwork, Tries: "to find a network interface that leads out",
			Steps: []Step{shell("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | sed 's/^/route /'; cat /proc/net/unix | grep -c '/'")},
			Held:  "^lo\n0\n=> EXITED", Never: "route", Tiers: shared,
		},
		Attack{
			// The name doesn't exist: the attack is stopped if there is no name server, not if the
			// name isn't found.
			Name: "names", Class: Network, Defence: OwnNetwork, Tries: "to resolve a name",
			Steps: []Step{probe("connect", "tcp", "rockpool-attack.example:80")}, Held: "^tcp \\S+ .*lookup .*: (connection refused|network is unreachable)\n=> EXITED 0",
		},
		Attack{
			Name: "another runner's port", Class: Network, Defence: OwnNetwork, Tries: "to reach a port in another runner",
			Steps: []Step{probe("loopback", "7707").inOther().behind(), probe("connect", "tcp", "127.0.0.1:7707"), probe("connect", "tcp", "127.0.0.1:7707").inOther()},
			Held:  "^listening done\n=> \ntcp \\S+ ECONNREFUSED\n=> EXITED 0\ntcp \\S+ done\n=> EXITED 0",
		},
		Attack{
			Name: "another runner's abstract socket", Class: Network, Defence: OwnNetwork, Tries: "to reach a program in another runner through an abstract socket",
			Steps: []Step{probe("abstract", "listen", "rockpool-attack").inOther().behind(), probe("abstract", "connect", "rockpool-attack"), probe("abstract", "connect", "rockpool-attack").inOther()},
			Held:  "^listening done\n=> \nabstract ECONNREFUSED\n=> EXITED 0\nabstract done\n=> EXITED 0",
		},
	)
}
