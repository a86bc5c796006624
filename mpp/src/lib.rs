//! The Flight door and distributed plans over columnar replicas.
