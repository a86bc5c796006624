# The one binary on a slim Debian. `docker build -t isobar .` compiles it; the release workflow puts the binaries that it
# has built in place of the stage `build` (--build-context build=FOLDER, with FOLDER/isobar-amd64 and so on).
ARG RUST=1.95
ARG DEBIAN=trixie

FROM rust:${RUST}-${DEBIAN} AS build
WORKDIR /source
COPY . .
ARG TARGETARCH
# Both caches outlive the build, so that the next one compiles what has changed.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target,id=isobar-target,sharing=locked \
    cargo build --locked --release -p isobar --target-dir "target/${TARGETARCH}" \
    && strip -o "/isobar-${TARGETARCH}" "target/${TARGETARCH}/release/isobar"

FROM debian:${DEBIAN}-slim
ARG TARGETARCH
RUN groupadd --gid 10001 isobar \
    && useradd --uid 10001 --gid isobar --home-dir /var/lib/isobar --no-create-home --shell /usr/sbin/nologin isobar \
    && install -d -o isobar -g isobar -m 0750 /var/lib/isobar \
    && install -d /etc/isobar
COPY --from=build --chmod=0755 /isobar-${TARGETARCH} /usr/local/bin/isobar
# By number, so that Kubernetes can tell that it is not root.
USER 10001:10001
WORKDIR /var/lib/isobar
# Data: data_dir of a node's settings is /var/lib/isobar. A new volume takes over the owner of this folder.
VOLUME /var/lib/isobar
# MySQL, between nodes, Arrow Flight.
EXPOSE 4000 4020 4040
# Healthy is what placement says is up: the node whose rpc_address is ISOBAR_ADDRESS, or any if that is not set.
# ISOBAR_PLACEMENT lists the rpc_address of row nodes; here those of a playground.
ENV ISOBAR_PLACEMENT=127.0.0.1:4020,127.0.0.1:4021,127.0.0.1:4022 \
    ISOBAR_ADDRESS=
HEALTHCHECK --interval=10s --timeout=15s --start-period=90s --start-interval=2s --retries=3 \
    CMD ["/bin/sh", "-c", "isobar ctl status --placement $ISOBAR_PLACEMENT | grep -Eq \" up +$ISOBAR_ADDRESS\""]
STOPSIGNAL SIGTERM
ENTRYPOINT ["isobar"]
CMD ["serve", "--config", "/etc/isobar/isobar.toml"]
