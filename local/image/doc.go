// Package image turns container images into root file systems: any reference of
// a registry, and layouts and archives in one directory, through
// google/go-containerregistry.
//
// [Cache.Resolve] says which bytes a reference means now, and pins them by a
// digest. [Cache.Want] has them there: pulled once whoever wants them, checked
// against that digest down to the last byte, unpacked beneath an os.Root with
// owners, modes and links, synced to the disk, and only then given their name.
// What was begun and not ended, for whatever reason, is deleted. An image that is
// there never changes, and goes only when nobody uses it and room is needed.
//
// Layers are written by strangers. Nothing that they say leads out of the
// image's directory, makes a device, gives a privilege, or takes more room, files
// or time than the limits say.
package image
