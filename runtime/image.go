package runtime

// An ImagePin says which bytes an environment's image is, and what they say of
// how programs run there. The zero ImagePin is none: the image is the cluster's
// own business.
type ImagePin struct {
	Digest           string     `json:"digest,omitempty"` // "sha256:…"; nothing else ever has it
	Variables        []Variable `json:"variables,omitempty"`
	WorkingDirectory string     `json:"workingDirectory,omitempty"` // "": the workspace
	User             string     `json:"user,omitempty"`             // the name of the user that programs run as
	Account          string     `json:"account,omitempty"`          // the image's own user, as it says: a name or a number; only where files can't be given to another
	// Unpinned is why there is no digest: then each node runs what it has by the image's name.
	Unpinned string `json:"unpinned,omitempty"`
}

// An ImageState is where a cluster is in having a pinned image.
type ImageState string

// The states.
const (
	ImagePulling ImageState = "PULLING" // it is on its way
	ImageReady   ImageState = "READY"   // it is here, whatever becomes of where it came from
	ImageFailed  ImageState = "FAILED"  // it isn't here; the reason says what to do
)

// An ImageStatus says how far a cluster is with a pinned image. The zero
// ImageStatus is that of an environment without one.
type ImageStatus struct {
	Digest     string
	State      ImageState
	Layers     int // that it has; 0: not known yet
	LayersDone int
	Bytes      int64 // of the layers as they come, mostly compressed
	BytesDone  int64
	Reason     string // with FAILED: why, and what to do
}
