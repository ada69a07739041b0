package ops

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof" // adds itself to the default mux as well, which no role serves
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
)

// MetricsPath is the path of metrics. Readers need the right to "get" it.
const MetricsPath = "/metrics"

const (
	// cacheTTL is two usual scrape intervals.
	cacheTTL = time.Minute
	// outageGrace lets a known scraper go on while the Kubernetes API is unavailable, so that the outage is monitored.
	outageGrace = 24 * time.Hour
)

// Guard protects metrics and profiles.
type Guard struct{ metrics, profiles *authz.Guard }

// NewGuard returns a Guard that checks callers at the Kubernetes API. Its account needs the ClusterRole system:auth-delegator.
func NewGuard(kube kubernetes.Interface, log *slog.Logger) *Guard {
	guardOf := func(path string) *authz.Guard {
		return authz.New(authz.Options{
			TokenReviews:         kube.AuthenticationV1().TokenReviews(),
			SubjectAccessReviews: kube.AuthorizationV1().SubjectAccessReviews(),
			Verb:                 "get",
			Path:                 path,
			Lifetime:             cacheTTL,
			Grace:                outageGrace,
			Now:                  time.Now,
			Log:                  log,
		})
	}
	return &Guard{metrics: guardOf(MetricsPath), profiles: guardOf(ProfilesPath)}
}

// forPath returns the guard of a path; nil: unprotected.
func (g *Guard) forPath(path string) *authz.Guard {
	switch {
	case path == MetricsPath:
		return g.metrics
	case strings.HasPrefix(path, ProfilesPath):
		return g.profiles
	default:
		return nil
	}
}

// Protect requires authentication and authorization at MetricsPath and below ProfilesPath. Other paths stay open, because the
// kubelet's probes have no token. A nil Guard protects nothing.
func (g *Guard) Protect(next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard := g.forPath(r.URL.Path)
		if guard == nil {
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		if _, err := guard.Check(r.Context(), r.RemoteAddr, token); err != nil {
			writeRejected(w, r.URL.Path, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func writeRejected(w http.ResponseWriter, path string, err error) {
	switch {
	case errors.Is(err, authz.ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "authentication required", http.StatusUnauthorized)
	case errors.Is(err, authz.ErrForbidden):
		http.Error(w, "account is not allowed to read "+path, http.StatusForbidden)
	default:
		http.Error(w, "temporarily unavailable: cannot authenticate at the Kubernetes API", http.StatusServiceUnavailable)
	}
}

// ProfilesPath is the path of profiles. Readers need the right to "get" it; a rule for /debug/pprof/* grants it.
const ProfilesPath = "/debug/pprof/"

// Profiles serves the profiles of this process below ProfilesPath for `go tool pprof`. It leaves out the command line, which may
// have a password, and the symbol table, which Go's profiles contain.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProfilesPath, pprof.Index) // and all profiles that it lists
	mux.HandleFunc("GET "+ProfilesPath+"profile", pprof.Profile)
	mux.HandleFunc("GET "+ProfilesPath+"trace", pprof.Trace)
	return mux
}

// ErrOpenProfiles means that profiles would be open to everybody. They slow a process down and show what it does.
var ErrOpenProfiles = errors.New("--pprof needs --secure-metrics, or a loopback address in --ops-address")

// CheckProfiles checks that profiles are protected, or served on a loopback address only. The error is ErrOpenProfiles.
func CheckProfiles(secure bool, address string) error {
	if secure || httpserver.Loopback(address) {
		return nil
	}
	return ErrOpenProfiles
}
