// Package maker makes sandboxes without a process image of its own for each: it is the
// part of rockpool-sandbox that runs for as long as its server does.
//
// The first process of a sandbox is cloned from the maker straight into all of its
// namespaces. Before it becomes the agent it makes a fixed list of system calls (a
// [script]), which the maker wrote from the OCI spec: it joins its groups, mounts, drops
// what it doesn't need, and waits until the maker has read the limits back. It runs none
// of the maker's code but the loop over that list, and it gets none of its descriptors.
//
// What all sandboxes of a server share, a [stage] has mounted once: the root directory,
// what of the machine is shown in it, and /dev. Each sandbox gets a copy of these mounts.
//
// The methods of a [Maker] are safe for concurrent use, for different sandboxes.
package maker
