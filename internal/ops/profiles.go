package ops

import (
	"errors"
	"net"
	"net/http"
	"net/http/pprof" // adds itself to the default mux as well, which nobody here serves
	"net/netip"
)

// ProfilesPath is where profiles are, and what Kubernetes is asked about: the right is to "get" this path, which a rule for
// /debug/pprof/* gives.
const ProfilesPath = "/debug/pprof/"

// Profiles serves the profiles of this process below ProfilesPath, as `go tool pprof` reads them. The
// command line is left out, for somebody may have put a password there, and so is the table of symbols, for Go's profiles bring theirs.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProfilesPath, pprof.Index) // and every profile it lists but these
	mux.HandleFunc("GET "+ProfilesPath+"profile", pprof.Profile)
	mux.HandleFunc("GET "+ProfilesPath+"trace", pprof.Trace)
	return mux
}

// ErrOpenProfiles says that anybody could take profiles, which slows a process down and shows what it does.
var ErrOpenProfiles = errors.New("profiles need secure metrics, unless the ops port listens on a loopback address")

// CheckProfiles says whether profiles may be served at the listen address: to those only whom Kubernetes lets get them, as with
// secure metrics, or to nobody from elsewhere. The error is ErrOpenProfiles.
func CheckProfiles(secure bool, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if secure || host == "localhost" || (err == nil && ip.Unmap().IsLoopback()) {
		return nil
	}
	return ErrOpenProfiles
}
