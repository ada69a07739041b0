{{/* An Ingress to a role's Service. Takes root, role, values (of the Ingress), hosts (none: all) and portName. */}}
{{- define "merchant-operator.ingress" -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ include "merchant-operator.roleName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
  {{- with .values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .values.className }}
  ingressClassName: {{ . | quote }}
  {{- end }}
  {{- if .values.tlsSecretName }}
  tls:
  - secretName: {{ .values.tlsSecretName | quote }}
    hosts:
    {{- toYaml .hosts | nindent 4 }}
  {{- end }}
  rules:
  {{- range default (list "") .hosts }}
  - http:
      paths:
      - path: /
        pathType: Prefix
        backend:
          service:
            name: {{ include "merchant-operator.roleName" $ | quote }}
            port:
              name: {{ $.portName | quote }}
    {{- with . }}
    host: {{ . | quote }}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* An HTTPRoute to a role's Service. Takes root, role, values (of the HTTPRoute), hosts (none: all of the Gateway) and port. */}}
{{- define "merchant-operator.httpRoute" -}}
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {{ include "merchant-operator.roleName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "merchant-operator.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role | quote }}
  {{- with .values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs:
  {{- toYaml .values.parentRefs | nindent 2 }}
  {{- with .hosts }}
  hostnames:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  rules:
  - matches:
    - path:
        type: PathPrefix
        value: /
    backendRefs:
    - name: {{ include "merchant-operator.roleName" . | quote }}
      port: {{ .port }}
    {{- with .values.requestTimeout }}
    timeouts:
      request: {{ . | quote }}
    {{- end }}
{{- end -}}
