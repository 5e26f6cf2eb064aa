// Package image turns container images into root file systems. It pulls images from registries, and
// reads OCI layouts and archives in one directory, through google/go-containerregistry. A stored
// image is complete and never changes.
//
// [Cache.Resolve] pins a reference to a digest. [Cache.Want] stores the image. It is pulled once,
// however many callers want it, and every byte is checked against the digest. It is unpacked
// beneath an os.Root with owners, modes and links, synced to the disk, and only then renamed to its
// final name. Incomplete pulls are deleted. A stored image is deleted only when it is unused and
// room is needed.
//
// Layers are untrusted. Nothing in them can reach outside the image's directory, make a device,
// give privileges, or exceed the limits of bytes, files and time.
package image
