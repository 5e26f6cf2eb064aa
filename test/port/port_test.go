package port

import (
	"net"
	"testing"
)

func TestPortsBelongToOneTest(t *testing.T) {
	held := ""
	t.Run("its holder", func(t *testing.T) {
		held = Spare(t)
		if again := Spare(t); again == held {
			t.Errorf("%s was returned twice", again)
		}
	})
	listener, err := net.Listen("tcp", held) // it was released, and something else listens
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if next := Spare(t); next == held {
		t.Errorf("%s already has a listener", next)
	}
}
