package server

import (
	"net"
	"os"
)

// notify sends a state to systemd through $NOTIFY_SOCKET; see sd_notify(3). Without the variable it
// does nothing.
func notify(state string) error {
	address := os.Getenv("NOTIFY_SOCKET") // @ at the start means an abstract socket; net does the same
	if address == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
