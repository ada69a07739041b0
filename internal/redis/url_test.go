package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]redis.UniversalOptions{
		"redis://localhost:6379":                    {Addrs: []string{"localhost:6379"}},
		"redis://redis.shops.svc":                   {Addrs: []string{"redis.shops.svc:6379"}},
		"redis://[::1]:6380/3":                      {Addrs: []string{"[::1]:6380"}, DB: 3},
		"redis://:p%40ss@redis:6379/0":              {Addrs: []string{"redis:6379"}, Password: "p@ss"},
		"rediss://till:secret@redis.example:6380/1": {Addrs: []string{"redis.example:6380"}, DB: 1, Username: "till", Password: "secret"},
		"redis+sentinel://s1:26379/2?master_name=pay&addr=s2:26379&addr=s3:26380": {
			Addrs: []string{"s1:26379", "s2:26379", "s3:26380"}, DB: 2, MasterName: "pay",
		},
		"rediss+sentinel://watch:w@s1:26379?master_name=pay&username=till&password=secret": {
			Addrs: []string{"s1:26379"}, MasterName: "pay", SentinelUsername: "watch", SentinelPassword: "w", Username: "till", Password: "secret",
		},
		"redis+cluster://c1:7000": {Addrs: []string{"c1:7000"}, IsClusterMode: true},
		"rediss+cluster://till:secret@c1:7000/?addr=c2:7001": {
			Addrs: []string{"c1:7000", "c2:7001"}, IsClusterMode: true, Username: "till", Password: "secret",
		},
	} {
		got, err := parseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(&want, got, cmpopts.IgnoreFields(redis.UniversalOptions{}, "TLSConfig")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if secure := strings.HasPrefix(text, "rediss"); secure != (got.TLSConfig != nil) {
			t.Errorf("%s: TLS is %v", text, got.TLSConfig != nil)
		}
		if got.TLSConfig != nil && got.TLSConfig.InsecureSkipVerify {
			t.Errorf("%s: certificates are not verified", text)
		}
		// With several servers each has to prove its own name.
		if got.TLSConfig != nil && strings.Contains(text, "+") && got.TLSConfig.ServerName != "" {
			t.Errorf("%s: every server must be called %s", text, got.TLSConfig.ServerName)
		}
	}
}

// Where servers have replicas and change places with them, an answered settlement must survive that without anybody's doing.
func TestChooseReplicas(t *testing.T) {
	for text, want := range map[string]int{
		"redis://r:1": 0, "rediss://r:1/2": 0, "redis+sentinel://s:1?master_name=m": 1, "rediss+cluster://c:1": 1, "redis+cluster://": 0, "": 0,
	} {
		if got := ChooseReplicas(nil, text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		if got := ChooseReplicas(new(2), text); got != 2 {
			t.Errorf("%q: %d, want the 2 that are configured", text, got)
		}
	}
}

func TestOpen_InvalidURL(t *testing.T) {
	for desc, text := range map[string]string{
		"nothing":                        "",
		"no scheme":                      "hunter2.example:6379",
		"another scheme":                 "http://hunter2.example:6379",
		"another kind":                   "redis+ring://hunter2.example:6379",
		"no host":                        "redis:///0",
		"a database that is no number":   "redis://redis:6379/hunter2",
		"too long a path":                "redis://redis:6379/0/hunter2",
		"a password that is not encoded": "redis://:hun/ter2@redis:6379/0",
		"one that looks like a port":     "redis://:12/hunter2@redis:6379/0",
		"a bad escape":                   "redis://:hunter2%zz@redis:6379/0",
		"a control character":            "redis://:hunter2\n@redis:6379/0",
		"a parameter of the client":      "redis://:hunter2@redis:6379/0?max_retries=3",
		"an unknown parameter":           "redis://:hunter2@redis:6379/0?hunter2=1",
		"certificates not verified":      "rediss://:hunter2@redis:6379/0?skip_verify=true",
		"Sentinels without a master":     "redis+sentinel://:hunter2@s1:26379/0",
		"Sentinels by latency":           "redis+sentinel://s1:26379?master_name=hunter2&route_by_latency=true",
		"a bad further address":          "redis+cluster://c1:7000?addr=hunter2",
		"a cluster with a database":      "redis+cluster://c1:7000/2?addr=hunter2:7000",
		"replicas of a cluster":          "redis+cluster://:hunter2@c1:7000?read_only=true",
	} {
		opened, err := Open(Options{URL: text, Timeout: defaultTimeout})
		if err == nil {
			_ = opened.Close()
			t.Errorf("%s: accepted", desc)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: the error quotes the URL: %v", desc, err)
		}
	}
}

// Whatever the options, no client may wait for seconds or repeat a script. No caller waits for a dial.
func TestOpen_TimeoutsAndRetries(t *testing.T) {
	for text, dialTimeout := range map[string]time.Duration{
		"redis://r:1": defaultTimeout, "redis+sentinel://s:1?master_name=m": 700 * time.Millisecond, "redis+cluster://c:1": defaultTimeout,
	} {
		opened, err := Open(Options{URL: text, Timeout: defaultTimeout, PoolSize: 7})
		if err != nil {
			t.Fatal(err)
		}
		switch client := opened.client.(type) {
		case *redis.Client:
			options := client.Options()
			if options.MaxRetries != 0 || options.ReadTimeout != defaultTimeout || options.DialTimeout != dialTimeout ||
				options.PoolTimeout != defaultTimeout || !options.ContextTimeoutEnabled || options.DialerRetries != 1 || options.PoolSize != 7 {
				t.Errorf("%s: %+v", text, options)
			}
		case *redis.ClusterClient:
			options := client.Options()
			if options.MaxRetries != -1 || options.ReadTimeout != defaultTimeout || options.DialTimeout != dialTimeout ||
				options.PoolTimeout != defaultTimeout || !options.ContextTimeoutEnabled || options.DialerRetries != 1 || options.PoolSize != 7 {
				t.Errorf("%s: %+v", text, options)
			}
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen_InvalidOptions(t *testing.T) {
	for desc, options := range map[string]Options{
		"a negative timeout":           {Timeout: -time.Second},
		"a timeout of nothing":         {Timeout: time.Microsecond},
		"a negative pool":              {PoolSize: -1},
		"fewer than no replicas":       {Replicas: -1},
		"a negative wait for replicas": {Replicas: 1, ReplicaTimeout: -time.Second},
	} {
		options.URL = "redis://localhost:6379"
		if client, err := Open(options); err == nil {
			_ = client.Close()
			t.Errorf("%s: accepted", desc)
		}
	}
}
