package bed

import (
	"testing"
)

// An ImageState is what tests ask of an environment with an image.
type ImageState struct {
	Revision int
	Pool     struct {
		Idle   int
		Reason string
		Image  struct {
			Digest, State, Reason                string
			Layers, LayersDone, Bytes, BytesDone int64
		}
	}
}

// Image returns the state of an environment's image.
func (b Bed) Image(t *testing.T, environment string) ImageState {
	t.Helper()
	var out struct{ Environment ImageState }
	b.Call(t, `query($id: ID!) { environment(id: $id) { revision pool { idle reason image { digest state reason layers layersDone bytes bytesDone } } } }`, object{"id": environment}, &out)
	return out.Environment
}

// Version returns that of the image that a new runner is made from.
func (b Bed) Version(t *testing.T, environment string) string {
	t.Helper()
	return b.Shell(t, b.Claim(t, environment), "cat /version").Stream("STDOUT")
}

// ImageReason returns why an environment's image can't be had; "": it can, or may.
func (b Bed) ImageReason(t testing.TB, environment string) string {
	t.Helper()
	var out struct {
		Environment struct {
			Pool struct{ Image struct{ Reason string } }
		}
	}
	b.Call(t, `query($id: ID!) { environment(id: $id) { pool { image { reason } } } }`, object{"id": environment}, &out)
	return out.Environment.Pool.Image.Reason
}
