package chart

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// always are the objects of every rendering with the least that can be asked for.
var always = []string{
	"ClusterRole/merchant-operator", "ClusterRole/merchant-operator-dispatcher", "ClusterRole/merchant-operator-rail",
	"ClusterRole/merchant-operator-merchant-bookkeeper", "ClusterRole/merchant-operator-merchant-integrator", "ClusterRole/merchant-operator-merchant-viewer",
	"ClusterRoleBinding/merchant-operator", "ClusterRoleBinding/merchant-operator-apiserver", "ClusterRoleBinding/merchant-operator-dispatcher",
	"Deployment/merchant-operator", "Deployment/merchant-operator-apiserver", "Deployment/merchant-operator-dispatcher",
	"Role/merchant-operator", "Role/merchant-operator@" + credentials,
	"Role/merchant-operator-apiserver@" + credentials, "Role/merchant-operator-dispatcher@" + credentials,
	"RoleBinding/merchant-operator", "RoleBinding/merchant-operator@" + credentials,
	"RoleBinding/merchant-operator-apiserver@" + credentials, "RoleBinding/merchant-operator-dispatcher@" + credentials,
	"Service/merchant-operator-apiserver", "Service/merchant-operator-apiserver-internal", "Service/merchant-operator-ops",
	"ServiceAccount/merchant-operator", "ServiceAccount/merchant-operator-apiserver", "ServiceAccount/merchant-operator-dispatcher",
}

// Objects that a toggle adds.
var (
	budgets = []string{
		"PodDisruptionBudget/merchant-operator", "PodDisruptionBudget/merchant-operator-apiserver", "PodDisruptionBudget/merchant-operator-dispatcher",
	}
	policies  = []string{"NetworkPolicy/merchant-operator", "NetworkPolicy/merchant-operator-apiserver", "NetworkPolicy/merchant-operator-dispatcher"}
	ofConsole = []string{
		"Deployment/merchant-operator-console", "Service/merchant-operator-console", "ServiceAccount/merchant-operator-console",
		"ClusterRole/merchant-operator-console", "ClusterRoleBinding/merchant-operator-console",
		"ClusterRole/merchant-operator-console-cluster", "ClusterRoleBinding/merchant-operator-console-cluster",
	}
)

// least turns off what has a switch, and stands before the values of each case.
const least = `
crds: {enabled: false}
credentialsNamespace: {create: false}
podDisruptionBudget: {enabled: false}
networkPolicy: {enabled: false}
redis: {type: URL, url: {secretName: redis}}
`

// Each case is what a value adds to the least, and the API server is asked whether it takes it.
func TestEveryToggle(t *testing.T) {
	tests := []struct {
		name    string
		values  string
		added   []string
		removed []string
	}{
		{"the least", "", nil, nil},
		{"the CRDs", "crds: {enabled: true}", []string{
			"CustomResourceDefinition/apikeys.merchant-operator.io", "CustomResourceDefinition/merchants.merchant-operator.io",
		}, nil},
		{"the credentials namespace", "credentialsNamespace: {create: true}", []string{"Namespace/" + credentials}, nil},
		{"the deletion policy", "merchantDeletionPolicy: {enabled: true}", []string{
			"ValidatingAdmissionPolicy/merchant-operator-merchant-deletion", "ValidatingAdmissionPolicyBinding/merchant-operator-merchant-deletion",
		}, nil},
		{"disruption budgets", "podDisruptionBudget: {enabled: true, maxUnavailable: 25%}", budgets, nil},
		{"network policies", "networkPolicy: {enabled: true}", policies, nil},
		{"the bundled Redis", "redis: {type: Bundled}", []string{"Service/merchant-operator-redis", "StatefulSet/merchant-operator-redis"}, nil},
		{"the bundled Redis without a volume", "redis: {type: Bundled, bundled: {persistence: {enabled: false}}}",
			[]string{"Service/merchant-operator-redis", "StatefulSet/merchant-operator-redis"}, nil},
		{"the bundled Redis behind a policy", "redis: {type: Bundled, bundled: {persistence: {storageClassName: fast}}}\nnetworkPolicy: {enabled: true}", slices.Concat(policies, []string{
			"NetworkPolicy/merchant-operator-redis", "Service/merchant-operator-redis", "StatefulSet/merchant-operator-redis",
		}), nil},
		{"Sentinels", "redis: {type: Sentinel, addresses: ['a:26379', 'b:26379'], sentinel: {masterName: pay}, auth: {secretName: redis}, tls: {enabled: true, caSecretName: ca}}", nil, nil},
		{"an ingress", "apiserver: {trustedProxies: [10.0.0.0/8]}\ningress: {enabled: true, className: nginx, annotations: {a: b}, hosts: [pay.example, '*.pay.example'], tlsSecretName: tls}",
			[]string{"Ingress/merchant-operator-apiserver"}, nil},
		{"an ingress of any host", "apiserver: {clientsConnectDirectly: true}\ningress: {enabled: true}", []string{"Ingress/merchant-operator-apiserver"}, nil},
		{"an HTTPRoute", "apiserver: {trustedProxies: [10.0.0.0/8]}\nhttpRoute: {enabled: true, annotations: {a: b}, parentRefs: [{name: public, namespace: gateways}], hostnames: [pay.example]}",
			[]string{"HTTPRoute/merchant-operator-apiserver"}, nil},
		{"autoscaling", "apiserver: {autoscaling: {enabled: true}}", []string{"HorizontalPodAutoscaler/merchant-operator-apiserver"}, nil},
		{"rails", "rails: [{namespace: rails, serviceAccountName: card}, {namespace: rails, serviceAccountName: bank}]",
			[]string{"ClusterRoleBinding/merchant-operator-rail"}, nil},
		{"the console", withConsole, ofConsole, nil},
		{"the console with all that it may have", `
podDisruptionBudget: {enabled: true}
networkPolicy: {enabled: true}
apiserver: {internalCertificateSecretName: internal-tls}
console:
  enabled: true
  externalURL: https://console.example
  autoscaling: {enabled: true}
  trustedProxies: [10.0.0.0/8]
  oidc: {issuerURL: https://id.example, clientID: console, caSecretName: id-ca}
  ingress: {enabled: true, className: nginx, annotations: {a: b}, tlsSecretName: console-tls}
  httpRoute: {enabled: true, annotations: {a: b}, parentRefs: [{name: public}]}
`, slices.Concat(ofConsole, budgets, policies, []string{
			"HorizontalPodAutoscaler/merchant-operator-console", "Ingress/merchant-operator-console", "HTTPRoute/merchant-operator-console",
			"PodDisruptionBudget/merchant-operator-console", "NetworkPolicy/merchant-operator-console",
		}), nil},
		{"TLS on the internal port", "apiserver: {internalCertificateSecretName: internal-tls}", nil, nil},
		{"some namespaces only", "watchNamespaces: [shops, more-shops]", []string{
			"Role/merchant-operator-managed@shops", "Role/merchant-operator-managed@more-shops",
			"Role/merchant-operator-dispatcher-managed@shops", "Role/merchant-operator-dispatcher-managed@more-shops",
			"RoleBinding/merchant-operator-managed@shops", "RoleBinding/merchant-operator-managed@more-shops",
			"RoleBinding/merchant-operator-dispatcher-managed@shops", "RoleBinding/merchant-operator-dispatcher-managed@more-shops",
		}, []string{
			"ClusterRole/merchant-operator", "ClusterRole/merchant-operator-dispatcher",
			"ClusterRoleBinding/merchant-operator", "ClusterRoleBinding/merchant-operator-dispatcher",
		}},
		{"a place for the pods", placed, nil, nil},
		{"an image by digest", "image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}\nimagePullSecrets: [{name: registry}]", nil, nil},
		{"nobody but the programs themselves", nobody, policies, nil},
		{"a load balancer", "apiserver: {service: {type: LoadBalancer, annotations: {a: b}}, preStopSeconds: 0}", nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := render(t, least, test.values).stream()
			want := slices.DeleteFunc(slices.Concat(always, test.added), func(key string) bool { return slices.Contains(test.removed, key) })
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(objects(t, text)))); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			kubectl(t, text, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		})
	}
}

const placed = `
operator: &role
  nodeSelector: {pool: payments}
  tolerations: [{key: pool, operator: Equal, value: payments, effect: NoSchedule}]
  affinity: {podAntiAffinity: {}}
  priorityClassName: system-cluster-critical
  podAnnotations: {a: b}
  podLabels: {team: payments}
  extraArgs: [--log-level=DEBUG]
  extraEnv: [{name: A, value: b}]
apiserver: *role
dispatcher: *role
console: *role
topologySpread: {keys: [rack], whenUnsatisfiable: DoNotSchedule}
`

const nobody = `
networkPolicy:
  enabled: true
  publicFrom: []
  internalFrom: []
  consoleFrom: []
  opsFrom: []
  dnsTo: []
  webhooksTo: []
  kubernetesAPI: {to: []}
  openIDProvider: {to: []}
  redis: {to: []}
`
