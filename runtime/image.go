package runtime

// An ImagePin identifies the bytes of an environment's image, and holds what the image says about
// running programs. The zero ImagePin means that the cluster alone handles the image.
type ImagePin struct {
	Digest           string     `json:"digest,omitempty"` // "sha256:…" of the content
	Variables        []Variable `json:"variables,omitempty"`
	WorkingDirectory string     `json:"workingDirectory,omitempty"` // "": the workspace
	User             string     `json:"user,omitempty"`             // name of the user that programs run as
	// Account is the image's own USER, a name or a number. It is set only where files can't be
	// given to another user.
	Account string `json:"account,omitempty"`
	// Unpinned is why there is no digest. Each node then runs its own version of the image.
	Unpinned string `json:"unpinned,omitempty"`
}

// An ImageState says whether a cluster has a pinned image.
type ImageState string

// The states.
const (
	ImagePulling ImageState = "PULLING" // it is being pulled
	ImageReady   ImageState = "READY"   // it is stored here; its registry is no longer needed
	ImageFailed  ImageState = "FAILED"  // it is missing; Reason says what to do
)

// An ImageStatus is the progress of a cluster in getting a pinned image. It is zero for an
// environment without one.
type ImageStatus struct {
	Digest     string
	State      ImageState
	Layers     int // in the image; 0: not known yet
	LayersDone int
	Bytes      int64 // of the layers as transferred, mostly compressed
	BytesDone  int64
	Reason     string // with FAILED: why, and what to do
}
