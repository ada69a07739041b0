package ops

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof" // adds itself to the default mux as well, which nobody here serves
	"net/netip"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// Path is where metrics are, and what Kubernetes is asked about: the right is to "get" this path.
const Path = "/metrics"

const (
	// verdictLifetime is two scrapes, as they are usually made.
	verdictLifetime = time.Minute
	// outageGrace lets a scraper in that was good before the Kubernetes API went away: the outage is to be watched.
	outageGrace = 24 * time.Hour
)

// Guard lets only those read the metrics, and the profiles, who have the right to them.
type Guard struct{ metrics, profiles *authz.Guard }

// NewGuard returns a Guard that asks the Kubernetes API. Its own account needs the rights of system:auth-delegator.
func NewGuard(kube kubernetes.Interface, log *slog.Logger) *Guard {
	readersOf := func(path string) *authz.Guard {
		return authz.New(authz.Options{
			Tokens:   kube.AuthenticationV1().TokenReviews(),
			Access:   kube.AuthorizationV1().SubjectAccessReviews(),
			Verb:     "get",
			Path:     path,
			Lifetime: verdictLifetime,
			Grace:    outageGrace,
			Now:      time.Now,
			Log:      log,
		})
	}
	return &Guard{metrics: readersOf(Path), profiles: readersOf(ProfilesPath)}
}

// readers returns who decides about a path, nil: nobody does.
func (g *Guard) readers(path string) *authz.Guard {
	switch {
	case path == Path:
		return g.metrics
	case strings.HasPrefix(path, ProfilesPath):
		return g.profiles
	default:
		return nil
	}
}

// Protect guards a handler at Path and below ProfilesPath; at any other path it is as open as before, for the kubelet presents no
// token to probes. A nil Guard lets everybody in.
func (g *Guard) Protect(next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		readers := g.readers(r.URL.Path)
		if readers == nil {
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		if err := readers.Check(r.Context(), token); err != nil {
			refuse(w, r.URL.Path, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, path string, err error) {
	switch {
	case errors.Is(err, authz.ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "authentication required", http.StatusUnauthorized)
	case errors.Is(err, authz.ErrForbidden):
		http.Error(w, "your account may not read "+path, http.StatusForbidden)
	default:
		http.Error(w, "the Kubernetes API cannot say who calls", http.StatusServiceUnavailable)
	}
}

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
