package redis

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errURL quotes nothing of the URL: even what is wrong with it may be half a password.
var errURL = errors.New("--redis-url or REDIS_URL must be redis://[user:password@]host:port/db, " +
	"redis+sentinel://host:port/db?master_name=name&addr=host2:port2[&username=u&password=p] or " +
	"redis+cluster://[user:password@]host:port?addr=host2:port2, with rediss for TLS, " +
	"special characters percent-encoded and no other parameters")

// CheckURL returns the error that Open has for such a URL; nil: it has a valid form.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// parseURL returns the servers that the URL names. Parameters that would tune the client are rejected, not
// ignored: Options decide about those.
func parseURL(text string) (*redis.UniversalOptions, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	scheme, kind, _ := strings.Cut(parsed.Scheme, "+")
	if (scheme != "redis" && scheme != "rediss") || parsed.Host == "" {
		return nil, errURL
	}
	parsed.Scheme = scheme
	switch kind {
	case "":
		return parseServer(parsed)
	case "sentinel":
		return parseSentinel(parsed)
	case "cluster":
		return parseCluster(parsed)
	}
	return nil, errURL
}

func parseServer(parsed *url.URL) (*redis.UniversalOptions, error) {
	target, err := redis.ParseURL(parsed.String())
	if err != nil || !onlyParameters(parsed) {
		return nil, errURL
	}
	return &redis.UniversalOptions{
		Addrs: []string{target.Addr}, DB: target.DB,
		Username: target.Username, Password: target.Password, TLSConfig: target.TLSConfig,
	}, nil
}

func parseSentinel(parsed *url.URL) (*redis.UniversalOptions, error) {
	target, err := redis.ParseFailoverURL(parsed.String())
	if err != nil || !onlyParameters(parsed, "addr", "master_name", "username", "password") || target.MasterName == "" {
		return nil, errURL
	}
	if target.TLSConfig != nil {
		target.TLSConfig.ServerName = "" // each server proves its own name, not the first one's
	}
	return &redis.UniversalOptions{
		MasterName: target.MasterName, Addrs: target.SentinelAddrs, DB: target.DB,
		SentinelUsername: target.SentinelUsername, SentinelPassword: target.SentinelPassword,
		Username: target.Username, Password: target.Password, TLSConfig: target.TLSConfig,
	}, nil
}

func parseCluster(parsed *url.URL) (*redis.UniversalOptions, error) {
	target, err := redis.ParseClusterURL(parsed.String())
	if err != nil || !onlyParameters(parsed, "addr") || strings.Trim(parsed.Path, "/") != "" {
		return nil, errURL
	}
	if target.TLSConfig != nil {
		target.TLSConfig.ServerName = ""
	}
	return &redis.UniversalOptions{
		IsClusterMode: true, Addrs: target.Addrs,
		Username: target.Username, Password: target.Password, TLSConfig: target.TLSConfig,
	}, nil
}

func onlyParameters(parsed *url.URL, known ...string) bool {
	for name := range parsed.Query() {
		if !slices.Contains(known, name) {
			return false
		}
	}
	return true
}
