package isolation

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// An ImageState is the part of an environment with an image that tests read.
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

// imageOf returns the state of an environment's image.
func imageOf(t *testing.T, b bed.Bed, environment string) ImageState {
	t.Helper()
	var out struct{ Environment ImageState }
	b.Call(t, `query($id: ID!) { environment(id: $id) { revision pool { idle reason image { digest state reason layers layersDone bytes bytesDone } } } }`, object{"id": environment}, &out)
	return out.Environment
}

// version returns the version of the image of a new runner.
func version(t *testing.T, b bed.Bed, environment string) string {
	t.Helper()
	return b.Shell(t, b.Claim(t, environment), "cat /version").Stream("STDOUT")
}

// imageReason returns why an environment's image is unavailable; "" if it isn't, or not yet.
func imageReason(t testing.TB, b bed.Bed, environment string) string {
	t.Helper()
	var out struct {
		Environment struct {
			Pool struct{ Image struct{ Reason string } }
		}
	}
	b.Call(t, `query($id: ID!) { environment(id: $id) { pool { image { reason } } } }`, object{"id": environment}, &out)
	return out.Environment.Pool.Image.Reason
}
