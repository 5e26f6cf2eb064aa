// Package maker makes sandboxes without executing a helper program for each. It is the part of
// rockpool-sandbox that runs as long as its server.
//
// The first process of a sandbox is cloned from the maker directly into all of its namespaces.
// Before it becomes the agent, it makes a fixed list of system calls (a [script]) that the maker
// wrote from the OCI spec. It joins its cgroups, mounts file systems, drops privileges, and waits
// until the maker has read the limits back. Of the maker's code it runs only the loop over that
// list, and it gets none of the maker's other descriptors.
//
// A [stage] has mounted once what all sandboxes of a server share: the root directory, the
// machine's directories that are shown in it, and /dev. Each sandbox gets a copy of these mounts.
//
// The methods of a [Maker] are safe for concurrent use, for different sandboxes.
package maker
